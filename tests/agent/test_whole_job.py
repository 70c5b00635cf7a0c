"""A job from its first read to its result: what is committed, how often, and that the counters can be recounted."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from jobs import views
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database
from storage.records import Checkpoint, Committed, RunRef
from tests.agent.stage import Stage, call, calls, go
from tests.strict_endpoint import Call
from worker.tools.base import ToolContext


def test_read_compute_write_complete(stage: Stage) -> None:
    """Done without seeing: the result, the file, the counters and every row are what was really done."""
    job_id = stage.play(
        calls(call("Read", path="input/numbers.txt")),
        calls(
            call(
                "Bash",
                command="awk '{s+=$1} END {print s}' input/numbers.txt > output/sum.txt; cat output/sum.txt",
            )
        ),
        calls(call("Write", path="output/note.md", content="The sum is 6.\n")),
        go("COMPLETE", "The sum is 6; see output/note.md."),
        files={"numbers.txt": b"1\n2\n3\n"},
    )
    job, row = stage.job(job_id), stage.row(job_id)
    assert (job.state, job.reason, job.result) == (
        "succeeded",
        "completed",
        "The sum is 6; see output/note.md.",
    )
    assert (stage.workspace(job_id) / "output/sum.txt").read_text() == "6\n"
    assert (stage.workspace(job_id) / "output/note.md").read_text() == "The sum is 6.\n"

    messages = stage.messages(job_id)
    assert [m.seq for m in messages] == list(range(1, len(messages) + 1))
    assert row["total_messages"] == len(messages)
    assert row["total_tool_calls"] == sum(m.role == "tool" for m in messages) == 4
    assert row["steps"] == sum(m.role == "assistant" for m in messages) == 4
    assert row["prompt_tokens"] == sum(request.prompt_tokens for request in stage.endpoint.requests)
    assert row["final_message_count"] == len(messages)
    assert stage.call_states(job_id) == ["done"] * 4
    assert row["completion_tokens"] > 0
    assert row["active_seconds"] > 0
    [run] = stage.runs(job_id)
    assert (run["outcome"], run["ended_at"] is not None) == ("succeed", True)
    [remark] = views.list_comments(stage.doors, job_id)
    assert remark.kind == "result"
    assert remark.text == job.result
    assert row["inbox_total"] == row["inbox_seen"] == 1


def test_every_checkpoint_is_one_transaction(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-written steps: a reply with its calls is one commit, each result is one, and nothing else is written."""
    commits: list[list[str]] = []
    transactions: list[str] = []
    engine = stage.process.db.engine
    sa.event.listen(engine, "begin", lambda _: transactions.append("begin"))
    sa.event.listen(engine, "commit", lambda _: transactions.append("commit"))

    def counted(db: Database, run: RunRef, checkpoint: Checkpoint) -> Committed:
        del transactions[:]
        committed = commit_if_run_owns(db, run, checkpoint)
        assert transactions == ["begin", "commit"]
        commits.append([message.role for message in checkpoint.messages])
        return committed

    monkeypatch.setattr("worker.job_run.commit_if_run_owns", counted)
    stage.play(calls(call("Act", n=1), call("Act", n=2)), calls(call("Act", n=3)), go("COMPLETE"))
    assert commits == [
        ["system", "user", "user", "user"],
        ["assistant"],
        ["tool"],
        ["tool"],
        ["assistant"],
        ["tool"],
        ["assistant"],
        ["tool"],
    ]


def test_no_connection_is_held_while_the_model_or_a_tool_works(stage: Stage) -> None:
    """A lock or a connection held across a model call or a tool starves every other run of the process."""
    held: list[int] = []

    def effect(_context: ToolContext, _arguments: dict[str, Any]) -> None:
        held.append(stage.process.db.busy_connections)

    stage.acts[0].effect = effect
    stage.play(calls(call("Act", n=1), call("Act", n=2)), go("COMPLETE"))
    assert held == [0, 0]
    assert stage.busy_calls == [0, 0]


def test_text_that_no_database_takes(stage: Stage) -> None:
    """NUL and lone surrogates in a transition's arguments: cleaned at every write, not an internal error."""
    text = r'{"next_step": "COMPLETE", "summary": "nul \u0000, half \ud83d, whole \ud83d\ude00"}'
    job = stage.job(stage.play(calls(Call("transition", text))))
    assert (job.state, job.result) == ("succeeded", "nul ␀, half �, whole 😀")


@pytest.mark.parametrize("ending", ["ABORT", "ASK"])
def test_text_that_no_database_takes_in_other_endings(stage: Stage, ending: str) -> None:
    """The same for a question and for the reason of a job that is given up."""
    text = rf'{{"next_step": "{ending}", "summary": "nul \u0000 half \ud83d."}}'
    job = stage.job(stage.play(calls(Call("transition", text))))
    told = (job.pending_question or {}).get("question") if ending == "ASK" else job.error
    assert (job.state, told) == ({"ASK": "waiting_human", "ABORT": "aborted"}[ending], "nul ␀ half �.")


def test_a_job_that_is_given_up(stage: Stage) -> None:
    """ABORT is an outcome of its own, with the agent's reason."""
    job = stage.job(stage.play(go("ABORT", "there is no input")))
    assert (job.state, job.reason, job.error) == ("aborted", "aborted_by_agent", "there is no input")
    assert "there is no input" in (job.reason_text or "")


def test_an_error_inside_sostenuto_fails_the_job_and_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours must neither loop nor hang: the job fails with internal_error, and can be retried."""

    def broken(*_: Any) -> Any:
        raise KeyError("a fault \0 of ours")

    with monkeypatch.context() as patch:
        patch.setattr("worker.layout.build_messages", broken)
        job_id = stage.play()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "internal_error")
    assert "KeyError" in (job.error or "")
    assert "an error in Sostenuto" in (job.reason_text or "")
    assert stage.endpoint.calls() == 0
    stage.retry(job_id)
    stage.tell(go("COMPLETE", "after all"))
    stage.run()
    assert stage.job(job_id).result == "after all"
