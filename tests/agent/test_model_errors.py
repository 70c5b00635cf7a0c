"""What goes wrong at the model's end: what passes is waited out without a worker, what does not fails at once."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from storage import registry
from tests.agent.stage import COMPLETE, MODEL, Stage, call, calls
from tests.strict_endpoint import HttpFailure, StreamFailure
from worker.endings import LONGEST_BACKOFF, MOST_MODEL_FAILURES
from worker.model.errors import RATE_LIMIT_WAIT

DOWN = HttpFailure(500, {"error": {"message": "boom"}})


def error(code: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": code}}


def limited(header: str | None) -> HttpFailure:
    return HttpFailure(429, error("rate_limit_exceeded"), {"Retry-After": header} if header else {})


def wait_of(stage: Stage, job_id: str) -> float:
    row = stage.row(job_id)
    return float(row["available_at"] - row["updated_at"])


@pytest.mark.parametrize(("header", "seconds"), [("30", 30), ("date", 40), (None, RATE_LIMIT_WAIT)])
def test_a_rate_limit_frees_the_worker_until_the_endpoint_said(
    stage: Stage, header: str | None, seconds: float
) -> None:
    """Retry-After in seconds or as a date: the job is queued until then, and nobody sleeps."""
    if header == "date":
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    job_id = stage.play(calls(call("Act", n=1)), limited(header))
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("queued", "rate_limited")
    assert seconds - 3 <= wait_of(stage, job_id) <= seconds * 1.2 + 1
    assert stage.endpoint.url in (job.reason_text or "")
    assert stage.run() is None
    stage.make_due(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(stage.acts[0].runs) == 1


def test_a_cooldown_is_shared_by_all_workers(stage: Stage) -> None:
    """Another process, idle until now, does not call the endpoint at all, and its job waits as long as the first."""
    stage.play(limited("60"))
    other = stage.submit()
    assert stage.endpoint.calls() == 1
    stage.restart()
    stage.tell()
    stage.look()
    assert stage.run() == other
    job = stage.job(other)
    assert (job.state, job.reason) == ("queued", "rate_limited")
    assert 50 < wait_of(stage, other) <= 73
    assert stage.endpoint.calls() == 1


def test_a_cooldown_ends_however_many_jobs_find_it(stage: Stage) -> None:
    """Each job that finds a cooldown must not make it longer: with many jobs it would never end."""
    endpoint = stage.process.endpoint(MODEL)
    registry.cool_down(stage.doors.db, endpoint, 60, "busy")
    before = registry.active_cooldowns(stage.doors.db)[endpoint]
    stage.tell()
    for _ in range(5):
        left = registry.active_cooldowns(stage.doors.db)[endpoint]
        stage.process.cooldowns = {endpoint: time.monotonic() + left}
        job_id = stage.submit()
        assert stage.run() == job_id
        assert stage.job(job_id).reason == "rate_limited"
    assert registry.active_cooldowns(stage.doors.db)[endpoint] <= before + 0.5
    assert stage.endpoint.calls() == 0


@pytest.mark.parametrize("failure", [DOWN, StreamFailure(2), StreamFailure(4, "end")])
def test_what_passes_is_tried_again_with_growing_waits(stage: Stage, failure: Any) -> None:
    """500s and cut streams, even after complete-looking arguments: nothing is kept, the waits grow, and end."""
    waits: list[float] = []
    stage.tell(*[calls(call("Act", n=1))] * MOST_MODEL_FAILURES)
    job_id = stage.submit()
    for _ in range(MOST_MODEL_FAILURES - 1):
        stage.endpoint.fail(failure)
        assert stage.run() == job_id
        assert stage.job(job_id).reason == "model_unavailable"
        waits.append(wait_of(stage, job_id))
        stage.make_due(job_id)
    stage.endpoint.fail(failure)
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "model_error")
    assert "8 calls in a row failed" in (job.error or "")
    for number, wait in enumerate(waits):
        expected = min(2.0**number, LONGEST_BACKOFF)
        assert expected - 0.5 <= wait <= expected * 1.2 + 0.5
    assert stage.acts[0].runs == []
    assert stage.endpoint.calls() == MOST_MODEL_FAILURES


def test_a_good_reply_ends_the_count(stage: Stage) -> None:
    stage.restart(slice_steps=1)
    stage.tell(calls(call("Act")), COMPLETE)
    job_id = stage.submit()
    stage.endpoint.fail(DOWN, times=3)
    for _ in range(3):
        stage.run()
        stage.make_due(job_id)
    assert stage.row(job_id)["model_failures"] == 3
    stage.run()
    assert stage.row(job_id)["model_failures"] == 0


def test_rate_limits_are_no_failures(stage: Stage) -> None:
    """A job that waited for a busy endpoint all day must not fail at the first passing error."""
    stage.tell(COMPLETE)
    job_id = stage.submit()
    for _ in range(MOST_MODEL_FAILURES + 2):
        stage.endpoint.fail(limited("0"))
        stage.run()
        stage.make_due(job_id)
    stage.endpoint.fail(DOWN)
    stage.run()
    assert stage.job(job_id).reason == "model_unavailable"
    stage.make_due(job_id)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


@pytest.mark.parametrize(
    ("failure", "reason", "hint"),
    [
        (HttpFailure(401, error("invalid_api_key")), "authentication", "mend OPENAI_API_KEY"),
        (HttpFailure(400, error("invalid_request_error")), "model_error", "sostenuto retry"),
        (HttpFailure(429, error("insufficient_quota")), "quota", "raise it"),
        (HttpFailure(400, error("context_length_exceeded")), "context_exhausted", "sostenuto retry"),
    ],
)
def test_what_does_not_pass_fails_at_once_and_can_be_retried(
    stage: Stage, failure: HttpFailure, reason: str, hint: str
) -> None:
    """A wrong key, a refused request, a used-up quota: asked once, with a reason that says what helps."""
    job_id = stage.play(calls(call("Act", n=1)), failure)
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", reason)
    assert hint in (job.next_action or "")
    assert (job.error or "").startswith(f"{reason}: 127.0.0.1")
    assert stage.endpoint.calls() == 2
    assert stage.retry(job_id).state == "queued"
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(stage.acts[0].runs) == 1


def test_a_missing_model_is_said_in_words(stage: Stage) -> None:
    stage.restart(model=None)
    job_id = stage.play()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "model_not_configured")
    assert "SOSTENUTO_MODEL" in (job.reason_text or "")
    stage.restart(model=MODEL)
    stage.retry(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


@pytest.mark.parametrize("wish", ["pause", "cancel"])
@pytest.mark.parametrize("failure", [DOWN, limited("60")])
def test_what_people_ask_during_a_call_that_fails_is_done(
    stage: Stage, wish: str, failure: HttpFailure
) -> None:
    """A pause or cancel must not be forgotten because the job goes back to the queue."""
    gate = stage.endpoint.hold()
    stage.endpoint.fail(failure)
    stage.tell(COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        getattr(stage, wish)(job_id)
        gate.release()
    job = stage.job(job_id)
    assert (job.state, job.reason) == {
        "pause": ("paused", "paused_by_user"),
        "cancel": ("cancelled", "cancelled_by_user"),
    }[wish]
    if wish == "pause":
        assert stage.resume(job_id).state == "queued"
        stage.run()
        assert stage.job(job_id).state == "succeeded"
