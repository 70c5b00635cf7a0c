"""A job's final summary: written after its end, by a run of its own, and never in the way of its result."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.states import State
from storage.errors import LeaseLost
from storage.final_summaries import SummaryEnd, claim_summary, end_summary_if_run_owns, final_summary
from storage.records import NewEvent, NewSummary, Paid, RunRef
from storage.spending import charge_if_run_owns
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.inherit.family import (
    KEY,
    SUMMARY,
    count_summaries,
    ended,
    make_summary_due,
    summaries_of,
    summarised,
    summary_runs,
    write_summary,
)
from tests.strict_endpoint import Answer, Call, ChatRequest, HttpFailure, Reply, StreamFailure, StrictEndpoint
from worker.final_summary import MOST_ATTEMPTS, run_summary
from worker.heartbeat import Control, Heartbeat
from worker.live import LiveRun

DOWN = HttpFailure(503, {"error": {"message": "overloaded"}})
NO_KEY = HttpFailure(401, {"error": {"message": "bad key"}})


def test_it_covers_the_whole_job_and_is_charged_to_it(stage: Stage) -> None:
    """The summariser is told the task, every message and the end; the cost is on the job, the text in its summaries."""
    stage.restart(prices={"*": {"input": 1, "output": 10}})
    job_id = ended(stage, calls(call("Act", n=7)), COMPLETE, instruction="Count the stars.")
    before = stage.row(job_id)
    told: list[str] = []

    def mind(request: ChatRequest) -> Answer:
        told.extend(str(message["content"]) for message in request.messages)
        assert not request.tools
        return SUMMARY

    assert write_summary(stage, mind) == job_id

    row = stage.row(job_id)
    assert (row["state"], row["result"]) == (State.SUCCEEDED, "all is done")
    assert row["summary_state"] == "done"
    for text in ("Count the stars.", "acted 7", "The job has ended: succeeded"):
        assert any(text in part for part in told), text
    [summary] = summaries_of(stage, job_id)
    assert (summary.kind, summary.number, summary.content) == ("final", 1, SUMMARY.text)
    assert (summary.first_seq, summary.last_seq) == (1, row["total_messages"])
    assert row["total_summaries"] == 1
    assert row["prompt_tokens"] == before["prompt_tokens"] + summary.prompt_tokens
    assert summary.prompt_tokens > 0
    assert row["cost"] == pytest.approx(before["cost"] + summary.cost)
    assert summary.cost > 0
    [done] = stage.events(job_id, "summary_done")
    assert done["cost"] == pytest.approx(summary.cost)
    assert summary_runs(stage, job_id) == ["done"]
    assert not stage.process.live.all()


def test_each_end_of_a_job_that_worked_owes_one(stage: Stage) -> None:
    stage.tell(go("ABORT", "no use"))
    aborted = stage.submit()
    stage.run()
    stage.tell(Reply(refusal="never"))
    refused = stage.submit()  # it failed before any reply was kept
    stage.run()
    idle = stage.submit()
    stage.cancel(idle)
    stage.tell(go("ASK", "Which?"))
    asking = stage.submit()
    stage.run()
    stage.cancel(asking)

    states = {job_id: stage.row(job_id)["summary_state"] for job_id in (aborted, refused, idle, asking)}
    assert states == {aborted: "pending", refused: "none", idle: "none", asking: "pending"}


def test_a_dead_jobs_end_by_the_sweep_owes_one(stage: Stage) -> None:
    stage.restart(max_attempts=1)

    def die(_context: Any, _arguments: Any) -> str:
        raise PowerCut

    stage.acts[0].effect = die
    job_id = stage.submit(**KEY)
    stage.tell(calls(call("Act")))
    stage.crash()
    stage.sweep()
    assert stage.job(job_id).state == State.FAILED
    assert stage.row(job_id)["summary_state"] == "pending"


def test_none_is_owed_where_they_are_turned_off(stage: Stage) -> None:
    stage.reopen(context={"final_summary": {"enabled": False}})
    job_id = stage.play(COMPLETE, **KEY)
    assert stage.row(job_id)["summary_state"] == "none"


def test_a_japanese_job_is_summarised_in_japanese(stage: Stage) -> None:
    ended(stage, instruction="星を数えてください。")

    def mind(request: ChatRequest) -> Answer:
        assert "要約" in str(request.messages[0]["content"])
        return Reply("星は四十二個です。")

    assert write_summary(stage, mind)


def test_the_prompt_may_be_the_operators_own(stage: Stage) -> None:
    folder = stage.folder / "prompts"
    folder.mkdir()
    (folder / "final.md").write_text("Speak like a pirate, $tokens words.")
    ended(stage)

    def mind(request: ChatRequest) -> Answer:
        assert "pirate" in str(request.messages[0]["content"])
        return SUMMARY

    assert write_summary(stage, mind)


def test_a_passing_failure_is_tried_again_later_and_only_so_often(stage: Stage) -> None:
    job_id = ended(stage)
    for attempt in range(1, MOST_ATTEMPTS):
        assert write_summary(stage, DOWN) == job_id
        row = stage.row(job_id)
        assert (row["summary_state"], row["summary_attempts"]) == ("pending", attempt)
        assert row["summary_due_at"] > row["updated_at"]
        assert write_summary(stage) is None  # not due yet
        make_summary_due(stage, job_id)

    write_summary(stage, DOWN)

    row = stage.row(job_id)
    assert (row["state"], row["summary_state"]) == (State.SUCCEEDED, "failed")
    assert len(stage.events(job_id, "summary_retry")) == MOST_ATTEMPTS - 1
    [failed] = stage.events(job_id, "summary_failed")
    assert "overloaded" in failed["problem"]
    assert count_summaries(stage, job_id) == row["total_summaries"] == 0


def test_replies_that_break_off_cost_no_more_than_attempts(stage: Stage, endpoint: StrictEndpoint) -> None:
    """As while a proxy restarts: it is tried again later, and never taken for a window that is too small."""
    job_id = ended(stage)
    for attempt in range(1, MOST_ATTEMPTS):
        endpoint.fail(StreamFailure(1, "cut"))
        assert write_summary(stage) == job_id
        row = stage.row(job_id)
        assert (row["summary_state"], row["summary_attempts"]) == ("pending", attempt)
        make_summary_due(stage, job_id)
    assert write_summary(stage) == job_id
    assert stage.row(job_id)["summary_state"] == "done"


def test_a_failure_that_cannot_pass_fails_it_at_once_and_changes_nothing_else(stage: Stage) -> None:
    job_id = ended(stage)
    write_summary(stage, NO_KEY)
    row = stage.row(job_id)
    assert (row["state"], row["result"], row["error_message"]) == (State.SUCCEEDED, "all is done", None)
    assert row["summary_state"] == "failed"
    assert write_summary(stage) is None


def test_another_model_is_asked_where_the_jobs_own_fails(stage: Stage) -> None:
    asked: list[str] = []

    def mind(request: ChatRequest) -> Answer:
        asked.append(request.body["model"])
        return NO_KEY if request.body["model"] == "its-own" else SUMMARY

    stage.restart(fallback_models=["test-model"])
    job_id = ended(stage, model="its-own")
    write_summary(stage, mind, mind)
    assert asked == ["its-own", "test-model"]
    assert summaries_of(stage, job_id)[0].model == "test-model"


def test_a_tool_call_is_no_summary(stage: Stage) -> None:
    job_id = ended(stage)
    write_summary(stage, Reply(calls=(Call("Read", {"path": "x"}),)), SUMMARY)
    assert [summary.content for summary in summaries_of(stage, job_id)] == [SUMMARY.text]


def test_a_retry_voids_a_summary_that_is_being_written(stage: Stage) -> None:
    """The run that writes it is fenced: what it brings is refused, but for what it paid; it stops at the next look."""
    stage.restart(prices={"*": {"input": 1, "output": 10}})
    job_id = ended(stage, go("ABORT", "no use"))
    before = stage.row(job_id)

    def retried_meanwhile(_: ChatRequest) -> Answer:
        stage.retry(job_id)
        return SUMMARY

    write_summary(stage, retried_meanwhile)

    row = stage.row(job_id)
    assert (row["state"], row["summary_state"], row["summary_run_id"]) == (State.QUEUED, "none", None)
    assert count_summaries(stage, job_id) == 0
    assert row["prompt_tokens"] == before["prompt_tokens"] + stage.endpoint.requests[-1].prompt_tokens
    assert row["cost"] > before["cost"]
    assert summary_runs(stage, job_id) == ["voided"]
    stage.tell(COMPLETE)
    stage.run()
    write_summary(stage)
    assert [summary.number for summary in summaries_of(stage, job_id)] == [1]


def test_a_summary_of_before_a_retry_no_longer_serves(stage: Stage) -> None:
    job_id = ended(stage, go("ABORT", "no use"))
    write_summary(stage, Reply("It was given up."))
    assert final_summary(stage.doors.db, job_id) is not None
    stage.retry(job_id)
    assert final_summary(stage.doors.db, job_id) is None
    stage.tell(COMPLETE)
    stage.run()
    write_summary(stage, Reply("It worked."))
    found = final_summary(stage.doors.db, job_id)
    assert found is not None
    assert (found.number, found.content) == (2, "It worked.")


def test_a_voided_run_is_stopped_by_the_next_look(stage: Stage) -> None:
    """Its model call is broken off: nobody pays for an answer that is not wanted any more."""
    job_id = ended(stage, go("ABORT", "no use"))
    runs: list[LiveRun] = []

    def look(_: ChatRequest) -> Answer:
        runs.extend(stage.process.live.all())
        Control(stage.process).look()
        assert runs[0].cancel.reason is None
        stage.retry(job_id)
        Control(stage.process).look()
        Heartbeat(stage.process).beat()
        return SUMMARY

    write_summary(stage, look)
    assert runs[0].cancel.reason == "lease_lost"
    assert stage.row(job_id)["summary_state"] == "none"


def test_a_dead_writers_summary_is_taken_back_and_written_by_another(stage: Stage) -> None:
    job_id = ended(stage)
    db = stage.doors.db
    assert claim_summary(db, "dead", "worker-9", 60, job_id) is not None
    assert claim_summary(db, "other", "worker-8", 60, job_id) is None  # one writer at a time
    stage.sweep()
    assert summary_runs(stage, job_id) == [None]  # its lease has not ended
    stage.expire()
    stage.sweep()
    assert summary_runs(stage, job_id) == ["lost"]
    assert stage.row(job_id)["summary_attempts"] == 1

    assert write_summary(stage) == job_id

    zombie = SummaryEnd(
        "done",
        NewEvent("summary_done", "worker"),
        NewSummary("final", "too late", None, 1, 2, 2, 3),
    )
    before = stage.row(job_id)
    with pytest.raises(LeaseLost):
        end_summary_if_run_owns(db, RunRef("dead", job_id), zombie)
    with pytest.raises(LeaseLost):
        charge_if_run_owns(db, RunRef("dead", job_id), Paid(1, 1, 9.0))
    assert stage.row(job_id) == before
    assert [summary.content for summary in summaries_of(stage, job_id)] == [SUMMARY.text]


def test_a_summary_that_kills_its_workers_fails(stage: Stage) -> None:
    job_id = ended(stage)
    for attempt in range(MOST_ATTEMPTS):
        assert claim_summary(stage.doors.db, f"dead-{attempt}", "worker-9", 60, None) is not None
        stage.expire()
        stage.sweep()
    assert stage.row(job_id)["summary_state"] == "failed"
    assert len(stage.events(job_id, "summary_failed")) == 1
    assert stage.job(job_id).state == State.SUCCEEDED


def test_a_stopping_worker_gives_it_back_without_an_attempt(stage: Stage) -> None:
    job_id = ended(stage)

    def stopped(_: ChatRequest) -> Answer:
        [run] = stage.process.live.all()
        run.cancel.cancel("shutdown")
        return SUMMARY

    write_summary(stage, stopped)
    row = stage.row(job_id)
    assert (row["summary_state"], row["summary_attempts"], row["summary_run_id"]) == ("pending", 0, None)
    stage.restart()
    assert write_summary(stage) == job_id
    assert summary_runs(stage, job_id) == ["requeue", "done"]


def test_what_an_outage_left_is_given_back_by_the_heartbeat(stage: Stage) -> None:
    job_id = ended(stage)
    assert claim_summary(stage.doors.db, "unsure", "worker-1", 60, None) is not None
    stage.process.give_back_later("unsure")
    Heartbeat(stage.process).beat()
    row = stage.row(job_id)
    assert (row["summary_state"], row["summary_attempts"], row["summary_run_id"]) == ("pending", 0, None)


def test_a_doubled_wake_up_finds_nothing(stage: Stage) -> None:
    job_id = summarised(stage)
    assert run_summary(stage.process, job_id) is None
    assert count_summaries(stage, job_id) == 1


def test_a_long_job_is_summarised_in_parts(stage: Stage) -> None:
    """Larger than the window: every part is asked for, the summary so far with it."""
    stage.restart(context_window=4000)
    stage.acts[0].effect = lambda _context, arguments: f"word{arguments['n']} " * 900
    lines = [calls(call("Act", n=n)) for n in range(5)]
    stage.restart(context_window=100_000)
    job_id = ended(stage, *lines, COMPLETE)
    stage.restart(context_window=4000)
    told: list[str] = []

    def mind(request: ChatRequest) -> Answer:
        told.append(str(request.messages[1]["content"]))
        return Reply(f"part {len(told)}")

    stage.endpoint.mind = mind
    assert run_summary(stage.process, None) == job_id
    assert len(told) > 1
    assert all(any(f"word{n} " in part for part in told) for n in range(5))
    assert all(f"part {number}" in told[number] for number in range(1, len(told)))
    assert summaries_of(stage, job_id)[-1].content == f"part {len(told)}"
