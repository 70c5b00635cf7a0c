"""A wake-up is sent after the commit that it tells of, and what nobody was told of is told by the sweep."""

from __future__ import annotations

import sqlalchemy as sa

from jobs.installation import Installation
from storage.engine import Database
from storage.models import jobs
from tests import factories
from tests.agent.stage import Stage


class Ear:
    """Hears each wake-up in place of the broker, and looks how its job stands for everybody else at that moment."""

    def __init__(self, installation: Installation, db: Database) -> None:
        self.heard: list[tuple[str, str | None]] = []
        self.jobs: list[str] = []
        self._db = db
        vars(installation)["wakeups"] = self

    def send(self, queue: str, job_id: str) -> None:
        with self._db.read() as conn:
            state = conn.execute(sa.select(jobs.c.state).where(jobs.c.id == job_id)).scalar_one_or_none()
        self.heard.append((queue, state))
        self.jobs.append(job_id)

    def send_and_wait(self, queue: str, job_id: str) -> bool:
        self.send(queue, job_id)
        return True

    def close(self) -> None:
        pass


def test_every_wake_up_of_a_door_names_committed_work(stage: Stage) -> None:
    """Sent earlier, a worker would find nothing to claim, and the job would wait for the sweep."""
    db = stage.doors.db
    ear = Ear(stage.doors, stage.process.db)
    stage.submit()
    stage.reply(factories.make_job(db, "waiting_human"), "blue")
    stage.comment(factories.make_job(db, "waiting_human"), "red")
    stage.resume(factories.make_job(db, "paused"))
    stage.retry(factories.make_job(db, "failed"))
    parent = factories.make_job(db, "waiting_subtasks", children_open=1, children_total=1)
    stage.cancel(factories.make_job(db, "queued", parent_id=parent))
    assert ear.heard == [("agent", "queued")] * 6


def test_the_sweep_tells_of_what_nobody_was_told(stage: Stage) -> None:
    """A submitter died before it could tell, or the broker lost it."""
    stage.process.register()
    ear = Ear(stage.process.installation, stage.doors.db)
    job_id = factories.make_job(stage.doors.db, woken_at=0.0)
    stage.sweep()
    assert ear.jobs == [job_id]
    stage.sweep()
    assert ear.jobs == [job_id]  # told a moment ago
