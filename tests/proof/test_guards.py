"""Single guards, each shown at work as quickly as can be: what `make mutants` turns red."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from jobs.states import State
from jobs.subtasks import SubtaskRequest, begin_subtask
from storage.crashpoints import CrashPoint
from storage.errors import DatabaseUnavailable, LeaseLost
from storage.final_summaries import DONE, SummaryEnd, claim_summary, end_summary_if_run_owns
from storage.records import RunRef
from storage.runs import renew_leases
from storage.subtasks import list_children
from tests import factories
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls
from tests.context.driving import LEAN, fill, small_window, summaries, working
from tests.proof.hands import Fuse, install
from tests.strict_endpoint import HttpFailure
from worker.context_run import run_context
from worker.heartbeat import Heartbeat
from worker.live import LiveRun


def test_a_run_that_lost_its_job_begins_no_subtask(stage: Stage) -> None:
    lost = RunRef("another-run", factories.running_job(stage.doors.db).job_id)
    with pytest.raises(LeaseLost):
        begin_subtask(stage.doors, lost, SubtaskRequest("c1", "A part."))
    assert not list_children(stage.doors.db, lost.job_id)
    assert stage.row(lost.job_id)["children_total"] == 0


def test_a_writer_that_lost_its_summary_writes_nothing(stage: Stage) -> None:
    """Another one writes it already; what the first one would leave is not what was asked of the second."""
    db = stage.doors.db
    job_id = factories.make_job(db, "succeeded", steps=1, summary_state="pending", summary_due_at=0.0)
    assert claim_summary(db, "first", factories.WORKER, 60, job_id)
    stage.expire()
    stage.sweep()
    assert claim_summary(db, "second", factories.WORKER, 60, job_id)
    with pytest.raises(LeaseLost):
        end_summary_if_run_owns(db, RunRef("first", job_id), SummaryEnd(DONE))
    row = stage.row(job_id)
    assert (row["summary_state"], row["summary_run_id"]) == ("pending", "second")


def test_a_call_that_is_run_again_finds_the_subtask_that_it_began(stage: Stage) -> None:
    run = factories.running_job(stage.doors.db)
    first, begun = begin_subtask(stage.doors, run, SubtaskRequest("c1", "A part."))
    again, begun_again = begin_subtask(stage.doors, run, SubtaskRequest("c1", "A part."))
    assert (begun, begun_again) == (True, False)
    assert again.id == first.id
    assert stage.row(run.job_id)["children_open"] == 1


def test_a_heartbeat_waits_for_no_busy_pool(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty busy agents hold every connection of the pool; the leases of all of them are renewed meanwhile."""
    db = stage.doors.db
    run = factories.running_job(db)
    pool: Any = db.engine.pool
    monkeypatch.setattr(pool, "_timeout", 0.2)
    with ExitStack() as held:
        while pool.checkedout() < pool.size():  # on SQLite one is the writer's, always
            held.enter_context(db.read())
        assert renew_leases(db, [run.run_id], 60) == {run.run_id}


def test_a_run_that_lost_its_lease_is_told_at_the_next_beat(stage: Stage) -> None:
    """Its model call is dropped and its commands are killed: another run may be at work already."""
    ref = factories.running_job(stage.doors.db)
    live = LiveRun(ref, suspect=False)
    stage.process.live.add(live)
    Heartbeat(stage.process).beat()
    assert live.cancel.reason is None
    stage.expire()
    stage.sweep()
    Heartbeat(stage.process).beat()
    assert live.cancel.reason == "lease_lost"


def test_a_run_without_a_step_forgives_no_deaths(stage: Stage) -> None:
    """A job that kills its worker at each second run would else never end."""
    stage.acts[0].effect = _cut
    stage.tell(calls(call("Act")))
    job_id = stage.submit()
    stage.crash()
    stage.sweep()
    stage.tell(HttpFailure(500))
    assert stage.run() == job_id
    row = stage.row(job_id)
    assert (row["state"], row["reason"], row["attempt"]) == ("queued", "model_unavailable", 1)


def _cut(*_: object) -> str:
    raise PowerCut


def test_a_process_works_on_one_suspect_at_a_time(stage: Stage) -> None:
    """Of two jobs whose runs died one may be what killed them both: they share no process."""
    suspect = LiveRun(factories.running_job(stage.doors.db, attempt=1), suspect=True)
    stage.process.live.add(suspect)
    stage.tell(COMPLETE)
    waiting = stage.submit()
    factories.set_columns(stage.doors.db, waiting, attempt=1)
    assert stage.run() is None
    assert stage.row(waiting)["state"] == State.QUEUED
    stage.process.live.remove(suspect)
    assert stage.run() == waiting


def test_a_job_whose_database_failed_is_given_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the database answers again, not only when the lease is over."""

    def fail(*_: object) -> None:
        raise DatabaseUnavailable("the database is away")

    stage.tell()
    job_id = stage.submit()
    with monkeypatch.context() as patch:
        patch.setattr("worker.job_run.commit_if_run_owns", fail)
        assert stage.run() == job_id
    assert stage.row(job_id)["state"] == State.RUNNING
    Heartbeat(stage.process).beat()
    assert (stage.job(job_id).state, stage.job(job_id).reason) == ("queued", "worker_stopped")


def test_a_swap_is_committed_whole(stage: Stage) -> None:
    """A worker that dies just after the commit leaves the summary in its place and a job that goes on with it."""
    small_window(stage, compression={"keep_recent": 4})
    fill(stage, 300)
    stage.endpoint.mind = working(30)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    assert stage.job(job_id).state == State.COMPRESSING
    fuse = Fuse()
    restore = install(fuse)
    fuse.arm(CrashPoint.SWAP_COMMITTED)
    with pytest.raises(PowerCut):
        run_context(stage.process, None)
    restore()
    row = stage.row(job_id)
    assert (row["state"], row["run_id"]) == (State.QUEUED, None)
    assert len(summaries(stage, job_id)) == row["total_summaries"] == 1
    assert row["summary_seq"] > 0
