"""Limits of the settings: calls at once, calls and tokens a minute, over all workers; fair, and safe from crashes."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from storage.models import endpoint_turns, jobs
from storage.records import RunRef
from storage.runs import Claim, claim_best
from storage.turns import BURST_SECONDS, Limits, leave_turn, take_turn
from tests.agent.stage import COMPLETE, Stage, call, calls
from worker.slices import run_slice

ACT = calls(call("Again", n=1))
HERE = "http://here m"


def limited(stage: Stage, **limits: int) -> None:
    stage.reopen(models={"*": {"limits": limits}})


def turns(stage: Stage) -> list[tuple[str, str | None]]:
    with stage.doors.db.read() as conn:
        rows = conn.execute(sa.select(endpoint_turns).order_by(endpoint_turns.c.asked_at))
        return [(row.job_id, row.run_id) for row in rows]


def test_one_call_at_a_time_over_two_workers(stage: Stage) -> None:
    """The second job waits in the queue, its worker is free; when the first call is over it is woken at once."""
    limited(stage, concurrency=1)
    stage.tell(COMPLETE, COMPLETE)
    gate = stage.endpoint.hold()
    first, second = stage.submit(), stage.submit()
    elsewhere = stage.new_process("worker-elsewhere")
    with stage.running():
        gate.wait_held()
        run_slice(elsewhere, None)
        waiting = next(job for job in (first, second) if stage.job(job).state == "queued")
        job = stage.job(waiting)
        assert job.reason == "rate_limited"
        assert "1 calls at once" in stage.row(waiting)["reason_data"]["detail"]
        assert job.available_at > stage.doors.db.clock()
        gate.release()
    assert stage.job(waiting).available_at <= stage.doors.db.clock()
    run_slice(elsewhere, None)
    assert {stage.job(job).state for job in (first, second)} == {"succeeded"}
    assert stage.endpoint.calls() == 2
    assert turns(stage) == []


def test_many_workers_never_call_more_than_the_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(stage, concurrency=2)
    lock, now, most = threading.Lock(), 0, 0
    tale = stage.tell(*[COMPLETE] * 8)
    original = stage.process.models.complete

    def counted(request: Any, cancel: Any) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return original(request, cancel)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(stage.process.models, "complete", counted)
    ids = [stage.submit() for _ in range(8)]
    while any(stage.job(job).state != "succeeded" for job in ids):
        threads = [threading.Thread(target=stage.run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for job in ids:
            if stage.job(job).state == "queued":
                stage.make_due(job)
    stage.busy_calls.clear()  # other threads' connections, not the callers' own
    assert most <= 2
    assert tale.said == 8


def test_a_dead_worker_s_place_comes_back(stage: Stage) -> None:
    """Its run's lease is over: the place is free, and what waits takes it."""
    limited(stage, concurrency=1)
    stage.tell(COMPLETE, COMPLETE)
    gate = stage.endpoint.hold()
    dead = stage.submit()
    with stage.running():
        gate.wait_held()
        assert [job for job, run in turns(stage) if run] == [dead]
        stage.expire()
        waiting = stage.submit()
        other = stage.new_process("worker-elsewhere")
        done = threading.Thread(target=run_slice, args=(other, None))
        done.start()
        gate.wait_held(2)
        gate.release()
        done.join(60)
    assert stage.job(waiting).state == "succeeded"


def test_calls_a_minute_are_given_out_in_the_order_of_asking(stage: Stage) -> None:
    """Each job's time is its own: whoever asks again meanwhile overtakes nobody."""
    db, limits = stage.doors.db, Limits(None, 6, None)  # one in ten seconds, after a burst
    runs = [claimed(stage) for _ in range(5)]
    waits = [take_turn(db, HERE, limits, run, 0) for run in runs]
    free = [wait for wait in waits if wait is None]
    assert len(free) == 1 + int(BURST_SECONDS / 10)
    later = [wait for wait in waits if wait is not None]
    assert later == sorted(later)
    assert all(after - before > 9 for before, after in pairwise(later))
    again = [take_turn(db, HERE, limits, run, 0) for run in reversed(runs[2:])]
    assert again == sorted(again, key=lambda wait: -(wait or 0))
    assert max(wait or 0 for wait in again) <= max(later)


def test_tokens_a_minute_are_settled_by_what_was_used(stage: Stage) -> None:
    db, limits = stage.doors.db, Limits(None, None, 6_000)  # a hundred a second
    first, second, third = (claimed(stage) for _ in range(3))
    assert take_turn(db, HERE, limits, first, 3_000) is None
    leave_turn(db, HERE, limits, first, -2_900)
    assert take_turn(db, HERE, limits, second, 100) is None
    leave_turn(db, HERE, limits, second, 5_900)
    wait = take_turn(db, HERE, limits, third, 100)
    assert wait is not None
    assert 40 < wait < 60


def test_a_paused_job_holds_no_turn(stage: Stage) -> None:
    """What waits in front and will not come must not keep the others waiting."""
    db, limits = stage.doors.db, Limits(1, None, None)
    first, gone, last = (claimed(stage) for _ in range(3))
    assert take_turn(db, HERE, limits, first, 0) is None
    assert take_turn(db, HERE, limits, gone, 0) is not None
    assert take_turn(db, HERE, limits, last, 0) is not None
    with db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == gone.job_id).values(state="paused", run_id=None))
    leave_turn(db, HERE, limits, first, 0)
    assert take_turn(db, HERE, limits, last, 0) is None


@pytest.mark.parametrize("values", [{"state": "compressing"}, {"summary_state": "pending"}])
def test_a_summary_keeps_its_turn(stage: Stage, values: dict[str, str]) -> None:
    """Whatever a job waits to ask for: asking again gives it no later time, and takes nothing from the others."""
    db, limits = stage.doors.db, Limits(None, 6, None)
    runs = [claimed(stage) for _ in range(4)]
    waits = [take_turn(db, HERE, limits, run, 0) for run in runs]
    last = runs[-1]
    with db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == last.job_id).values(**values))
    again = [take_turn(db, HERE, limits, last, 0) for _ in range(3)]
    assert waits[-1] is not None
    assert all(wait is not None and wait <= waits[-1] for wait in again)


def test_an_endpoint_s_limit_counts_its_models_together(stage: Stage) -> None:
    stage.reopen(
        endpoints={"here": {"base_url": stage.endpoint.url, "limits": {"concurrency": 1}}},
        model="here/a",
    )
    stage.tell(COMPLETE, COMPLETE)
    gate = stage.endpoint.hold()
    first = stage.submit()
    with stage.running():
        gate.wait_held()
        second = stage.submit(model="here/b")
        run_slice(stage.new_process("worker-elsewhere"), None)
        assert stage.job(second).reason == "rate_limited"
        gate.release()
    stage.run()
    assert [stage.job(job).state for job in (first, second)] == ["succeeded", "succeeded"]


def test_without_limits_the_database_is_not_asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("asked for a turn")

    monkeypatch.setattr("worker.model.turns.take_turn", forbidden)
    assert stage.job(stage.play(ACT, COMPLETE)).state == "succeeded"


def claimed(stage: Stage) -> RunRef:
    """A job that runs, with a lease of its own."""
    job_id = stage.submit()
    run_id = f"run-{job_id}"
    claim = Claim(run_id, "w", "agent", "queued", "running", "claim", 60.0, allow_suspects=True)
    row = claim_best(stage.doors.db, claim, job_id)
    assert row is not None
    return RunRef(run_id, row["id"])
