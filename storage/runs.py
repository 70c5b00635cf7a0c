"""Runs: claiming a job, keeping its lease, and taking it back from a run that died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.choosing import Wanted, choose, line_of
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.history import append_events
from storage.limits import LimitOf, first_full, hold, holds_of, one_at_a_time
from storage.models import jobs, runs, watches
from storage.prepared import Prepared
from storage.records import NewEvent, RunRef
from storage.run_rows import begin_run

SUSPECT_ATTEMPTS = 1  # a job whose run died continues with no other such job in its process
HOLDS_AT_ONCE = 20  # rounds in one transaction: others write in between
LOST = "lost"  # the outcome of a run whose lease ended


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker asks for: a job in `source` state moves to `target` and is leased to the new run."""

    run_id: str
    worker: str
    kind: str
    source: str
    target: str
    event: str
    lease_seconds: float
    allow_suspects: bool
    reason: str | None = None  # every state but `running` has one
    limit_of: LimitOf | None = None  # how many jobs in `target` may be of a key; None: no limits at all


def claim_best(db: Database, claim: Claim, hint: str | None) -> dict[str, Any] | None:
    """Leases the best due job to a new run: highest priority, then whose turn it is, then the hinted job, then the
    longest due.

    None when nothing is due, or a limit holds all that is. Two claims never get the same job.
    """
    while True:
        claimed, again = _claim(db, claim, hint)
        if not again:
            return claimed


def _claim(db: Database, claim: Claim, hint: str | None) -> tuple[dict[str, Any] | None, bool]:
    with db.write(together=True) as conn:
        chosen, again = _choose(db, conn, claim, hint)
        if chosen is None:
            return None, again
        given = {"p_job": chosen.id, "p_source": claim.source, "p_target": claim.target}
        row = _TAKE.one_or_none(conn, given | {"p_run": claim.run_id, "p_reason": claim.reason})
        if row is None:
            return None, False
        now = row.updated_at
        begin_run(
            conn,
            RunRef(claim.run_id, row.id),
            kind=claim.kind,
            worker=claim.worker,
            attempt=row.attempt,
            now=now,
            lease_seconds=claim.lease_seconds,
            turn_of=row,
        )
        event = NewEvent(claim.event, claim.worker, claim.source, claim.target)
        append_events(conn, row.id, [event], last_seq=row.event_seq, now=now, run_id=claim.run_id)
        crash_point(CrashPoint.CLAIM_COMMITTING)
    crash_point(CrashPoint.CLAIM_COMMITTED)
    return row._asdict(), False


_TAKE = Prepared(
    sa.update(jobs)
    .where(
        jobs.c.id == sa.bindparam("p_job"),
        jobs.c.state == sa.bindparam("p_source"),
        jobs.c.run_id.is_(None),
    )
    .values(
        state=sa.bindparam("p_target"),
        run_id=sa.bindparam("p_run"),
        reason=sa.bindparam("p_reason"),
        reason_data=None,
        updated_at=wall_clock(),
        started_at=sa.func.coalesce(jobs.c.started_at, wall_clock()),
        event_seq=jobs.c.event_seq + 1,
    )
    .returning(*jobs.c),
    returning=tuple(jobs.c),
)


def _choose(db: Database, conn: Connection, claim: Claim, hint: str | None) -> tuple[Any | None, bool]:
    """The job to claim, if one is due; and whether to ask again, because many were found that a full limit holds."""
    attempts = None if claim.allow_suspects else SUSPECT_ATTEMPTS
    wanted = Wanted(claim.source, claim.kind, attempts, hint, locking=not db.is_sqlite)
    if claim.limit_of is None:
        return choose(conn, wanted), False
    one_at_a_time(db, conn)
    for _ in range(HOLDS_AT_ONCE):
        best = choose(conn, wanted)
        if best is None:
            return None, False
        full = first_full(conn, claim.target, holds_of(best._asdict(), claim.limit_of))
        if full is None:
            return best, False
        hold(conn, full, line_of(best, locking=wanted.locking))
        hold(
            conn, full, sa.select(jobs.c.id).where(jobs.c.id == best.id)
        )  # a hinted one may not be among the first
    return None, True


def renew_leases(db: Database, run_ids: Sequence[str], lease_seconds: float) -> set[str]:
    """One statement for all runs of a process, on its own connection. Returns those that are still held."""
    with db.lone_write() as conn:
        renewed = conn.execute(
            sa.update(runs)
            .where(runs.c.id.in_(run_ids), runs.c.ended_at.is_(None))
            .values(lease_expires_at=wall_clock() + lease_seconds)
            .returning(runs.c.id)
        )
        return set(renewed.scalars())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What people asked of a running job."""

    pause: bool
    cancel: bool
    watched: bool = False  # somebody looks at the job now


def read_wishes(db: Database, run_ids: Sequence[str]) -> dict[str, Wishes]:
    """Pause and cancel requests of the given runs' jobs, and whether they are watched, in one query.

    A run that lost its job is missing.
    """
    watched = sa.func.coalesce(watches.c.until > wall_clock(), sa.false()).label("watched")
    with db.read() as conn:
        rows = conn.execute(
            sa.select(runs.c.id, jobs.c.pause_requested, jobs.c.cancel_requested, watched)
            .join_from(runs, jobs, jobs.c.id == runs.c.job_id)
            .join(watches, watches.c.job_id == jobs.c.id, isouter=True)
            .where(sa.or_(jobs.c.run_id == runs.c.id, jobs.c.summary_run_id == runs.c.id))
            .where(runs.c.id.in_(run_ids))  # by two primary keys: jobs has no index on run_id
        )
        return {row.id: Wishes(row.pause_requested, row.cancel_requested, bool(row.watched)) for row in rows}


def find_run(db: Database, run_id: str) -> RunRef | None:
    """The run with this id; None when no such claim was committed."""
    with db.read() as conn:
        job_id = conn.execute(sa.select(runs.c.job_id).where(runs.c.id == run_id)).scalar_one_or_none()
        return None if job_id is None else RunRef(run_id, job_id)


def expired_runs(db: Database, limit: int) -> list[RunRef]:
    """Live runs whose lease has ended, longest first."""
    with db.read() as conn:
        rows = conn.execute(
            sa.select(runs.c.id, runs.c.job_id)
            .where(runs.c.ended_at.is_(None), runs.c.lease_expires_at < wall_clock())
            .order_by(runs.c.lease_expires_at)
            .limit(limit)
        )
        return [RunRef(row.id, row.job_id) for row in rows]


def end_run_if_expired(conn: Connection, run: RunRef) -> str | None:
    """Ends a run whose lease is still expired now, inside the transaction that holds its job's row.

    Returns its worker; None when its heartbeat came back in the meantime: the caller must roll back.
    """
    ended = conn.execute(
        sa.update(runs)
        .where(runs.c.id == run.run_id, runs.c.ended_at.is_(None), runs.c.lease_expires_at < wall_clock())
        .values(ended_at=wall_clock(), outcome=LOST)
        .returning(runs.c.worker)
    )
    return ended.scalar_one_or_none()


def take_unwoken_jobs(db: Database, state: str, again: float, limit: int) -> list[str]:
    """Due jobs in `state` whose wake-up was not sent since they became due, or `again` seconds ago; best first.

    Marks them as woken: the caller publishes their wake-ups next. Jobs whose row is locked are left for next time.
    """
    waiting = [jobs.c.state == state, jobs.c.held_for == "", jobs.c.run_id.is_(None)]
    queue = WakeQueue(waiting, jobs.c.available_at, jobs.c.woken_at, (jobs.c.priority.desc(),))
    return take_unwoken(db, queue, again, limit)


@dataclass(frozen=True, slots=True)
class WakeQueue:
    """Jobs that wait for a worker: which, since when, when one was last told, and what counts before the longest due."""

    waiting: Sequence[sa.ColumnElement[bool]]
    due_at: sa.Column[Any]
    woken_at: sa.Column[float]
    first: Sequence[sa.ColumnElement[Any]] = ()


def take_unwoken(db: Database, queue: WakeQueue, again: float, limit: int) -> list[str]:
    """The due jobs of a queue whose wake-up was not sent since they became due, or `again` seconds ago; marks them."""
    # Whoever makes a job due now also sends its wake-up, and marks both times in one statement.
    never_woken = queue.woken_at < queue.due_at - 0.05
    due = (
        sa.select(jobs.c.id)
        .where(
            *queue.waiting,
            queue.due_at <= wall_clock(),
            sa.or_(never_woken, queue.woken_at < wall_clock() - again),
        )
        .order_by(*queue.first, queue.due_at, jobs.c.id)
        .limit(limit)
    )
    with db.read() as conn:
        if conn.execute(due.limit(1)).first() is None:
            return []
    with db.write() as conn:
        found = list(conn.execute(due if db.is_sqlite else due.with_for_update(skip_locked=True)).scalars())
        conn.execute(sa.update(jobs).where(jobs.c.id.in_(found)).values({queue.woken_at.name: wall_clock()}))
        return found


def count_live_runs(db: Database, kind: str) -> int:
    """Runs of a kind that have not ended, dead ones that nobody has swept yet included."""
    with db.read() as conn:
        statement = (
            sa.select(sa.func.count()).select_from(runs).where(runs.c.kind == kind, runs.c.ended_at.is_(None))
        )
        return conn.execute(statement).scalar_one()


def live_runs_by_worker(db: Database) -> dict[str, int]:
    """How many runs each worker holds, dead ones that nobody has swept yet included."""
    statement = (
        sa.select(runs.c.worker, sa.func.count()).where(runs.c.ended_at.is_(None)).group_by(runs.c.worker)
    )
    with db.read() as conn:
        return {row.worker: int(row[1]) for row in conn.execute(statement)}


def list_runs(db: Database, job_id: str) -> list[dict[str, Any]]:
    """Every run of a job, oldest first."""
    statement = sa.select(runs).where(runs.c.job_id == job_id).order_by(runs.c.claimed_at)
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(statement)]
