"""What calls for summaries took. Charged at once: whatever becomes of a summary, that was paid."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.errors import LeaseLost
from storage.models import jobs, runs
from storage.records import Paid, RunRef
from storage.runs import LOST


def charge_if_run_owns(db: Database, run: RunRef, paid: Paid) -> None:
    """Adds to the job's spend, for a run that owns the job or writes its final summary.

    A run that a person ended meanwhile (a pause, a cancel, a retry) still tells what its last call took, before it hears
    LeaseLost; one that lost its lease writes nothing. Raises LeaseLost or StorageError.
    """
    values: dict[str, Any] = {
        "prompt_tokens": jobs.c.prompt_tokens + paid.prompt_tokens,
        "completion_tokens": jobs.c.completion_tokens + paid.completion_tokens,
        "updated_at": wall_clock(),
    }
    values |= {"cost_known": False} if paid.cost is None else {"cost": jobs.c.cost + paid.cost}
    mine = sa.update(jobs).where(jobs.c.id == run.job_id).values(values)
    owns = sa.or_(jobs.c.run_id == run.run_id, jobs.c.summary_run_id == run.run_id)
    was_ended = sa.exists().where(
        runs.c.id == run.run_id,
        runs.c.job_id == run.job_id,
        runs.c.ended_at.isnot(None),
        runs.c.outcome != LOST,
    )
    with db.write() as conn:
        owned = conn.execute(mine.where(owns)).rowcount == 1
        if not owned:
            conn.execute(mine.where(was_ended))
        crash_point(CrashPoint.CHARGE_COMMITTING)
    crash_point(CrashPoint.CHARGE_COMMITTED)
    if not owned:
        raise LeaseLost(run.job_id, run.run_id)
