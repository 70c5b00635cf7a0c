"""Calls for summaries keep the same rules as an agent's: the same models in order, the same limits, what was paid is paid."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from storage import registry
from storage.turns import take_turn
from tests.agent.stage import COMPLETE, MODEL, Line, Stage, Tale
from tests.context.driving import LEAN, drive, fill, is_summary, small_window, summaries, working
from tests.inherit.family import KEY, make_summary_due
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure, Reply, StrictEndpoint
from worker.context_run import run_context
from worker.fallback import ASIDE
from worker.final_summary import run_summary

BACKUP = "other/backup"
SUMMARY = Reply("What was done.")
NO_KEY = HttpFailure(401, {"error": {"message": "no", "code": "invalid_api_key"}})
DOWN = HttpFailure(500, {"error": {"message": "boom"}})


def limited(seconds: int) -> HttpFailure:
    return HttpFailure(429, {"error": {"code": "rate_limit_exceeded"}}, {"Retry-After": str(seconds)})


@pytest.fixture
def other(stage: Stage) -> Iterator[StrictEndpoint]:
    with StrictEndpoint(lambda _: SUMMARY) as endpoint:
        stage.reopen(endpoints={"other": {"base_url": endpoint.url}}, fallback_models=[BACKUP])
        yield endpoint
        endpoint.assert_clean()


def compressing(stage: Stage, *lines: Line, **changes: Any) -> str:
    """A job whose context is full; its first model answers with `lines` when it is asked for the summary."""
    small_window(stage, compression={"keep_recent": 4}, **changes)
    fill(stage)
    tale = Tale(lines)
    stage.endpoint.mind = working(14, summary=tale)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    assert stage.job(job_id).state == "compressing"
    return job_id


def asked_for_summaries(endpoint: StrictEndpoint) -> int:
    return sum("/compaction/" in request.label or "/final/" in request.label for request in endpoint.requests)


def active(stage: Stage) -> dict[str, float]:
    return registry.active_cooldowns(stage.doors.db)


def hear(stage: Stage) -> None:
    """What the control thread does every half second: the process learns of the others' cooldowns."""
    now = time.monotonic()
    stage.process.cooldowns = {key: now + left for key, left in active(stage).items()}


def test_a_compaction_turns_to_the_next_model_and_other_jobs_know(
    stage: Stage, other: StrictEndpoint
) -> None:
    """A key that is refused: set aside for everybody who has another model, not only for this summary."""
    job_id = compressing(stage, NO_KEY)
    run_context(stage.process, None)
    assert summaries(stage, job_id) == [SUMMARY.text]
    assert (asked_for_summaries(stage.endpoint), asked_for_summaries(other)) == (1, 1)
    assert list(active(stage)) == [stage.process.endpoint(MODEL) + ASIDE]

    other.mind = lambda _: COMPLETE
    before = stage.endpoint.calls()
    second = stage.submit(piece=LEAN)
    stage.run()
    stage.run()
    assert stage.job(second).state == "succeeded"
    assert stage.endpoint.calls() == before


def test_a_model_that_was_set_aside_is_not_asked_for_a_summary(stage: Stage, other: StrictEndpoint) -> None:
    job_id = compressing(stage)
    key = stage.process.endpoint(MODEL) + ASIDE
    registry.cool_down(stage.doors.db, key, 60, "no key")
    hear(stage)
    run_context(stage.process, None)
    assert summaries(stage, job_id) == [SUMMARY.text]
    assert asked_for_summaries(stage.endpoint) == 0


def test_one_failure_may_be_chance_two_are_not(stage: Stage, other: StrictEndpoint) -> None:
    """The first is waited out, as in a step; failures count over runs."""
    job_id = compressing(stage, DOWN, DOWN)
    run_context(stage.process, None)
    row = stage.row(job_id)
    assert (row["state"], row["reason"], row["model_failures"]) == ("compressing", "model_unavailable", 1)
    assert other.calls() == 0
    stage.make_due(job_id)
    run_context(stage.process, None)
    assert summaries(stage, job_id) == [SUMMARY.text]
    assert (asked_for_summaries(stage.endpoint), asked_for_summaries(other)) == (2, 1)


def test_a_model_that_writes_no_summary_is_no_worse_for_other_jobs(
    stage: Stage, other: StrictEndpoint
) -> None:
    """It answers; only this summary is asked of the next one."""
    job_id = compressing(stage, Reply(refusal="I will not."))
    run_context(stage.process, None)
    assert summaries(stage, job_id) == [SUMMARY.text]
    assert active(stage) == {}


def test_a_rate_limit_of_a_compaction_is_told_to_all_workers(stage: Stage) -> None:
    """And its job waits without a worker, in its state, as long as the endpoint said."""
    job_id = compressing(stage, limited(60))
    run_context(stage.process, None)
    row = stage.row(job_id)
    assert (row["state"], row["reason"]) == ("compressing", "rate_limited")
    assert row["reason_data"]["endpoint"] == stage.process.endpoint(MODEL)
    assert 55 < active(stage)[stage.process.endpoint(MODEL)] <= 60
    hear(stage)
    calls_before = stage.endpoint.calls()
    second = stage.submit(piece=LEAN)
    stage.run()
    assert (stage.job(second).reason, stage.endpoint.calls()) == ("rate_limited", calls_before)


def test_a_rate_limit_of_the_next_model_is_its_own(stage: Stage, other: StrictEndpoint) -> None:
    """The cooldown is of the model that said so, not of the job's first."""
    other.mind = lambda _: limited(60)
    job_id = compressing(stage, NO_KEY)
    run_context(stage.process, None)
    assert stage.row(job_id)["reason_data"]["endpoint"] == stage.process.endpoint(BACKUP)
    assert set(active(stage)) == {stage.process.endpoint(MODEL) + ASIDE, stage.process.endpoint(BACKUP)}


def test_a_rate_limit_of_a_final_summary_is_told_and_is_no_attempt(stage: Stage) -> None:
    """However often: an endpoint that is busy all day is no reason to give the summary up."""
    job_id = stage.play(COMPLETE, **KEY)
    for _ in range(6):
        stage.tell(limited(60))
        assert run_summary(stage.process, None) == job_id
        row = stage.row(job_id)
        assert (row["summary_state"], row["summary_attempts"]) == ("pending", 0)
        assert 58 < row["summary_due_at"] - row["updated_at"] <= 72
        assert 55 < active(stage)[stage.process.endpoint(MODEL)] <= 60
        make_summary_due(stage, job_id)
    stage.tell(SUMMARY)
    run_summary(stage.process, None)
    assert stage.row(job_id)["summary_state"] == "done"


def test_summaries_take_their_turn_with_the_tokens_they_will_take(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate of 0 lets a summary of 100,000 tokens pass a limit of 10,000 a minute."""
    expected: list[int] = []

    def taken(db: Any, key: str, limits: Any, run: Any, tokens: int) -> float | None:
        expected.append(tokens)
        return take_turn(db, key, limits, run, tokens)

    monkeypatch.setattr("worker.model.turns.take_turn", taken)
    job_id = compressing(stage, SUMMARY, models={"*": {"limits": {"tokens_per_minute": 10_000_000}}})
    for work in (run_context, run_summary):
        already = len(stage.endpoint.requests)
        expected.clear()
        assert work(stage.process, None) == job_id
        made = [request.prompt_tokens for request in stage.endpoint.requests[already:]]
        assert made
        assert expected == pytest.approx(made, rel=0.05)
        assert drive(stage, job_id) == "succeeded"
        stage.endpoint.mind = lambda _: SUMMARY


def test_a_summary_waits_for_its_turn(stage: Stage) -> None:
    """A limit of the settings holds for final summaries too, and waiting for it is no attempt."""
    job_id = stage.play(COMPLETE, **KEY)
    stage.restart(models={"*": {"limits": {"tokens_per_minute": 100}}})
    stage.tell(SUMMARY)
    run_summary(stage.process, None)
    assert stage.row(job_id)["summary_state"] == "done"
    stage.tell()
    stage.restart(context={"final_summary": {"enabled": True}})
    calls_before = stage.endpoint.calls()
    second = stage.submit(piece=None, **KEY)
    stage.run()
    assert stage.job(second).reason == "rate_limited"
    assert stage.endpoint.calls() == calls_before


def test_what_a_part_took_is_charged_though_the_worker_is_told_to_stop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part of a summary is paid when the second is broken off: by a shutdown, a failure, a death."""
    monkeypatch.setattr("worker.summarising.FIRST_SHARE", 0.5)  # more than one part
    ends: list[str] = []

    def second(_: ChatRequest) -> Answer:
        [live] = stage.process.live.all()
        live.cancel.cancel("shutdown")
        ends.append("stopped")
        return SUMMARY

    job_id = compressing(stage, SUMMARY, second, prices={"*": {"input": 1, "output": 10}})
    before = stage.row(job_id)
    run_context(stage.process, None)
    assert ends == ["stopped"]
    first = next(request for request in stage.endpoint.requests if is_summary(request))
    row = stage.row(job_id)
    assert row["prompt_tokens"] == before["prompt_tokens"] + first.prompt_tokens
    assert row["cost"] > before["cost"]
    assert summaries(stage, job_id) == []
