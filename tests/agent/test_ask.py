"""A question to a person: it holds no worker, and its answer is the call's result, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.errors import IllegalTransition
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.strict_endpoint import Answer, ChatRequest

ASK = go("ASK", "Which colour?")


def answers(stage: Stage, job_id: str) -> list[str]:
    return [m.content or "" for m in stage.messages(job_id) if m.tool_name == "transition"]


def asked(stage: Stage, *before: Any) -> str:
    job_id = stage.play(*before, ASK)
    assert stage.job(job_id).state == "waiting_human"
    return job_id


def test_a_question_frees_the_worker_and_says_what_it_waits_for(stage: Stage) -> None:
    job_id = asked(stage)
    job = stage.job(job_id)
    assert job.pending_question == {"question": "Which colour?"}
    assert "Which colour?" in (job.reason_text or "")
    assert "sostenuto reply" in (job.next_action or "")
    assert stage.call_states(job_id) == ["parked"]
    assert job.worker is None
    assert stage.process.live.all() == []
    assert [run["outcome"] for run in stage.runs(job_id)] == ["ask"]
    assert stage.run() is None  # nothing is due


@pytest.mark.parametrize("way", ["reply", "comment"])
@pytest.mark.parametrize("restarted", ["before", "after", "never"])
def test_the_answer_is_the_calls_result_in_the_same_conversation(
    stage: Stage, way: str, restarted: str
) -> None:
    """An answer a week and two restarts later goes on where the question was asked, and is shown once."""
    job_id = asked(stage, calls(call("Act", n=1)))
    if restarted == "before":
        stage.restart()
    getattr(stage, way)(job_id, "blue, please", "bob")
    if restarted == "after":
        stage.restart()
    assert stage.job(job_id).reason == "answered"
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id) == ["bob answers: blue, please", "Accepted. The job is complete."]
    last = stage.endpoint.requests[-1].messages
    assert [m["role"] for m in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert str(last).count("blue, please") == 1
    assert len({request.label for request in stage.endpoint.requests}) == 1
    assert len(stage.acts[0].runs) == 1
    assert stage.job(job_id).unread_comments == 0


def test_nobody_can_answer_twice(stage: Stage) -> None:
    """Two people answer at once: the first is the result, the second a comment that is shown after it."""
    job_id = asked(stage)
    stage.reply(job_id, "blue")
    with pytest.raises(IllegalTransition):
        stage.reply(job_id, "red")
    stage.comment(job_id, "or red")
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id)[0] == "ann answers: blue"
    [gap] = stage.gaps(job_id)
    assert gap.endswith(": or red")
    assert "blue" not in gap


def test_siblings_in_the_same_batch_run_first(stage: Stage) -> None:
    """The parked call leaves nothing behind it undone, wherever in the reply it stands."""
    transition = call("transition", next_step="ASK", summary="Which?")
    job_id = stage.play(calls(call("Act", n=1), transition, call("Act", n=2)))
    assert stage.call_states(job_id) == ["done", "parked", "done"]
    stage.reply(job_id, "blue")
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert [given["n"] for given in stage.acts[0].runs] == [1, 2]
    roles = [m["content"] for m in stage.endpoint.requests[-1].messages if m["role"] == "tool"]
    assert roles == ["acted 1", "ann answers: blue", "acted 2"]


def test_a_second_question_later(stage: Stage) -> None:
    """Replies are matched to their own question, side effects before them happen once."""
    job_id = asked(stage, calls(call("Act", n=1)))
    stage.reply(job_id, "blue")
    stage.tell(calls(call("Act", n=2)), go("ASK", "Which size?"))
    stage.run()
    assert stage.job(job_id).pending_question == {"question": "Which size?"}
    stage.restart()
    stage.reply(job_id, "large")
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id)[:2] == ["ann answers: blue", "ann answers: large"]
    assert [given["n"] for given in stage.acts[0].runs] == [1, 2]


def test_a_comment_that_came_before_the_question_is_read_first(stage: Stage) -> None:
    """A reply that arrives before the ASK commits must not be lost: the question is refused, the comment shown."""
    ids: list[str] = []

    def ask(_request: ChatRequest) -> Answer:
        stage.comment(ids[0], "blue, by the way")
        return ASK

    stage.tell(ask, COMPLETE)
    ids.append(stage.submit())
    stage.run()
    assert answers(stage, ids[0])[0].startswith("Not accepted: there are unread comments.")
    assert stage.gaps(ids[0])[0].endswith("blue, by the way")
    assert stage.job(ids[0]).state == "succeeded"


def test_a_crash_between_the_answer_and_its_result(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask, answer, crash: the question is not asked again, and what was appended is there once."""
    job_id = asked(stage, calls(call("Act", n=1)))
    stage.reply(job_id, "blue")

    def die(*_: object, **__: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr("worker.decisions.tool_message", die)
        stage.crash()
    stage.sweep()
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id) == ["ann answers: blue", "Accepted. The job is complete."]
    assert len(stage.acts[0].runs) == 1


def test_a_reply_during_a_pause_is_kept(stage: Stage) -> None:
    job_id = asked(stage)
    assert stage.pause(job_id).state == "paused"
    stage.reply(job_id, "blue")
    assert stage.job(job_id).state == "paused"
    assert stage.run() is None
    assert stage.resume(job_id).state == "queued"
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id)[0] == "ann answers: blue"


def test_a_pause_without_a_reply_goes_back_to_waiting(stage: Stage) -> None:
    job_id = asked(stage)
    stage.pause(job_id)
    job = stage.resume(job_id)
    assert (job.state, job.reason, job.pending_question) == (
        "waiting_human",
        "question",
        {"question": "Which colour?"},
    )


def test_cancelled_while_waiting_and_retried_it_asks_again(stage: Stage) -> None:
    job_id = asked(stage)
    stage.cancel(job_id)
    stage.retry(job_id)
    stage.tell()
    stage.run()
    assert stage.job(job_id).state == "waiting_human"
    stage.reply(job_id, "blue")
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id)[0] == "ann answers: blue"


def test_a_pause_that_was_asked_for_while_the_question_was_written(stage: Stage) -> None:
    """A pause during the model call must not be forgotten because the reply is a question."""
    ids: list[str] = []

    def ask(_request: ChatRequest) -> Answer:
        stage.pause(ids[0])
        return ASK

    stage.tell(ask)
    ids.append(stage.submit())
    stage.run()
    [job_id] = ids
    assert (stage.job(job_id).state, stage.job(job_id).reason) == ("paused", "paused_by_user")
    assert stage.resume(job_id).state == "waiting_human"
    stage.reply(job_id, "blue")
    stage.tell(COMPLETE)
    stage.run()
    assert answers(stage, job_id)[0] == "ann answers: blue"
