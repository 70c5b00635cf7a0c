"""The final summaries of jobs: which are owed, who writes one, and what became of it.

A summary is a run of its own kind. Its fence is the job's `summary_run_id`: a run that lost it, because its lease ended
or because the job was retried, writes nothing more. The job's state and result never depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.errors import LeaseLost
from storage.history import append_events
from storage.models import jobs, summaries
from storage.prepared import Prepared
from storage.records import NewEvent, NewSummary, RunRef, Summary
from storage.run_rows import begin_run, end_run
from storage.runs import WakeQueue, take_unwoken
from storage.summaries import add_summary

NONE, PENDING, DONE, FAILED = "none", "pending", "done", "failed"
RUN_KIND = "summary"


def owed_values(steps: int | sa.ColumnElement[int]) -> dict[str, Any]:
    """The columns by which a job that has just ended owes a summary, if it took a step. `steps` may be SQL.

    Whoever ends the job sends the wake-up next, so it counts as woken.
    """
    worked = sa.literal(steps) if isinstance(steps, int) else steps
    return {
        "summary_state": sa.case((worked > 0, PENDING), else_=NONE),
        "summary_due_at": wall_clock(),
        "summary_woken_at": wall_clock(),
        "summary_attempts": 0,
    }


def void_summary(conn: Connection, run_id: str | None) -> dict[str, Any]:
    """The columns of a job that goes on after all; a run that is writing its summary loses it. Holds the job's row."""
    if run_id is not None:
        end_run(conn, run_id, "voided")
    return {"summary_state": NONE, "summary_run_id": None, "summary_due_at": None, "summary_attempts": 0}


def claim_summary(
    db: Database, run_id: str, worker: str, lease_seconds: float, hint: str | None
) -> dict[str, Any] | None:
    """Leases the longest due pending summary, or the hinted one, to a new run; returns its job's row, or None."""
    with db.write() as conn:
        job_id = _choose(conn, hint)
        if job_id is None:
            return None
        found = _TAKE.one_or_none(conn, {"p_job": job_id, "p_run": run_id})
        if found is None:
            return None
        row: dict[str, Any] = found._asdict()
        now = row.pop("now")
        begin_run(
            conn,
            RunRef(run_id, job_id),
            kind=RUN_KIND,
            worker=worker,
            attempt=row["summary_attempts"],
            now=now,
            lease_seconds=lease_seconds,
        )
        crash_point(CrashPoint.CLAIM_COMMITTING)
    crash_point(CrashPoint.CLAIM_COMMITTED)
    return row


_DUE = (
    sa.select(jobs.c.id)
    .where(
        jobs.c.summary_state == PENDING,
        jobs.c.summary_run_id.is_(None),
        jobs.c.summary_due_at <= wall_clock(),
    )
    .with_for_update(skip_locked=True)  # says nothing on SQLite, where writers are alone
)
_HINTED = Prepared(_DUE.where(jobs.c.id == sa.bindparam("p_job")), returning=(jobs.c.id,))
_LONGEST_DUE = Prepared(_DUE.order_by(jobs.c.summary_due_at, jobs.c.id).limit(1), returning=(jobs.c.id,))
_NOW = wall_clock().label("now")
_TAKE = Prepared(
    sa.update(jobs)
    .where(
        jobs.c.id == sa.bindparam("p_job"), jobs.c.summary_state == PENDING, jobs.c.summary_run_id.is_(None)
    )
    .values(summary_run_id=sa.bindparam("p_run"))
    .returning(*jobs.c, _NOW),
    returning=(*jobs.c, _NOW),
)


def _choose(conn: Connection, hint: str | None) -> str | None:
    found = None if hint is None else _HINTED.one_or_none(conn, {"p_job": hint})
    found = found or _LONGEST_DUE.one_or_none(conn, {})
    return None if found is None else str(found.id)


@dataclass(slots=True)
class SummaryEnd:
    """How a run ends that was to write a summary: `state` done, failed, or pending, due again after `delay` seconds."""

    state: str
    event: NewEvent | None = None
    summary: NewSummary | None = None
    delay: float = 0.0
    counts: bool = True  # as a failed attempt, where it is pending again


def end_summary_if_run_owns(db: Database, run: RunRef, end: SummaryEnd) -> None:
    """Ends the run with what it found, in one transaction. Raises LeaseLost, when nothing is written, or StorageError."""
    given = {"p_job": run.job_id, "p_run": run.run_id, "p_state": end.state, "p_delay": end.delay}
    events = [] if end.event is None else [end.event]
    statement = _end_statement(
        events=len(events), pending=end.state == PENDING, counts=end.counts, delayed=bool(end.delay),
        summary=end.summary is not None,
    )  # fmt: skip
    with db.write() as conn:
        row = statement.one_or_none(conn, given)
        if row is None:
            raise LeaseLost(run.job_id, run.run_id)
        if end.summary is not None:
            add_summary(
                conn, run.job_id, end.summary, row.total_summaries, visit=row.visit, now=row.updated_at
            )
        append_events(conn, run.job_id, events, last_seq=row.event_seq, now=row.updated_at, run_id=run.run_id)
        end_run(conn, run.run_id, "requeue" if end.state == PENDING else end.state)
        crash_point(CrashPoint.SUMMARY_COMMITTING)
    crash_point(CrashPoint.SUMMARY_COMMITTED)


_ENDED = (jobs.c.event_seq, jobs.c.total_summaries, jobs.c.visit, jobs.c.updated_at)


@lru_cache(maxsize=32)
def _end_statement(*, events: int, pending: bool, counts: bool, delayed: bool, summary: bool) -> Prepared:
    """The guarded UPDATE with which a summary's run ends."""
    values: dict[str, Any] = {
        "summary_state": sa.bindparam("p_state"),
        "summary_run_id": None,
        "updated_at": wall_clock(),
        "event_seq": jobs.c.event_seq + events,
        "total_summaries": jobs.c.total_summaries + int(summary),
    }
    if pending:
        values |= {"summary_due_at": wall_clock() + sa.bindparam("p_delay", type_=sa.Double())}
        values |= {"summary_attempts": jobs.c.summary_attempts + int(counts)}
        values |= {} if delayed else {"summary_woken_at": wall_clock()}  # the run sends the wake-up itself
    update = (
        sa.update(jobs)
        .where(jobs.c.id == sa.bindparam("p_job"), jobs.c.summary_run_id == sa.bindparam("p_run"))
        .values(values)
    )
    return Prepared(update.returning(*_ENDED), returning=_ENDED)


def give_back_summary(db: Database, run: RunRef) -> bool:
    """Gives a pending summary back that its run cannot write now; False where the run holds none. Counts no attempt."""
    try:
        end_summary_if_run_owns(db, run, SummaryEnd(PENDING, counts=False))
    except LeaseLost:
        return False
    return True


def values_after_death(attempts: int, most: int) -> dict[str, Any]:
    """The columns of a job whose summary's run has died, the caller having ended it: another try, or none."""
    left = {"summary_run_id": None, "summary_attempts": attempts, "summary_due_at": wall_clock()}
    return left | {"summary_state": PENDING if attempts < most else FAILED}


def take_unwoken_summaries(db: Database, again: float, limit: int) -> list[str]:
    """Jobs with a due summary whose wake-up was not sent since it became due, or `again` seconds ago; longest first.

    Marks them as woken: the caller publishes their wake-ups next. Jobs whose row is locked are left for next time.
    """
    waiting = [jobs.c.summary_state == PENDING, jobs.c.summary_run_id.is_(None)]
    return take_unwoken(db, WakeQueue(waiting, jobs.c.summary_due_at, jobs.c.summary_woken_at), again, limit)


def final_summary(db: Database, job_id: str) -> Summary | None:
    """The summary of the job's last end; None where there is none, or it went on since and has not ended again."""
    newest = (
        sa.select(summaries)
        .join(jobs, jobs.c.id == summaries.c.job_id)
        .where(summaries.c.job_id == job_id, summaries.c.kind == "final", jobs.c.summary_state == DONE)
        .order_by(summaries.c.number.desc())
        .limit(1)
    )
    with db.read() as conn:
        row = conn.execute(newest).mappings().one_or_none()
        return None if row is None else Summary(**row)
