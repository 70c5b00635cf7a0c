"""What waits and what runs, by queue and by worker: for who looks after an installation."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database, wall_clock
from storage.models import cooldowns, jobs, runs
from storage.text import clean_text

PENDING = sa.literal(
    "pending", literal_execute=True
)  # in the text: else SQLite would not use the partial index


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Work of one kind that no worker has: `due` now, the oldest for `oldest_seconds`; `later` is not due yet."""

    kind: str  # agent, context, or summary
    due: int
    oldest_seconds: float
    later: int


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A job in a worker's hands. `lease_seconds` are left of its lease; below zero the sweep is about to take it."""

    job_id: str
    title: str
    owner: str
    kind: str  # agent, context, or summary
    worker: str
    movement: str
    claimed_at: float
    lease_expires_at: float
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Cooldown:
    """An endpoint that nobody asks until then, and why."""

    endpoint: str
    until: float
    reason: str


def queue_depths(db: Database) -> list[QueueDepth]:
    """What waits of each kind, on indexes of jobs that wait."""
    kinds = (
        ("agent", jobs.c.state == "queued", jobs.c.available_at),
        ("context", sa.and_(jobs.c.state == "compressing", jobs.c.run_id.is_(None)), jobs.c.available_at),
        ("summary", sa.and_(jobs.c.summary_state == PENDING, jobs.c.summary_run_id.is_(None)), jobs.c.summary_due_at),
    )  # fmt: skip
    found = []
    with db.read() as conn:
        for kind, waits, since in kinds:
            due = sa.func.count().filter(since <= wall_clock())
            oldest = wall_clock() - sa.func.min(since)
            row = conn.execute(sa.select(due, sa.func.count(), oldest).where(waits)).one()
            found.append(QueueDepth(kind, int(row[0]), max(0.0, float(row[2] or 0.0)), int(row[1] - row[0])))
    return found


def live_runs(db: Database, owner: str | None = None) -> list[LiveRun]:
    """The runs that hold a lease, those that have held theirs longest first; of the owner's jobs only, where given."""
    left = (runs.c.lease_expires_at - wall_clock()).label("lease_seconds")
    held = sa.select(
        runs.c.job_id, runs.c.kind, runs.c.worker, runs.c.claimed_at, runs.c.lease_expires_at, left
    ).where(runs.c.ended_at.is_(None))
    told = sa.select(jobs.c.id, jobs.c.title, jobs.c.owner, jobs.c.movement)
    if owner is not None:
        told = told.where(jobs.c.owner == clean_text(owner))
    with db.read() as conn:  # not a join: it might begin with the jobs, of which there are far more
        live = list(conn.execute(held.order_by(runs.c.claimed_at, runs.c.id)).mappings())
        ids = {row["job_id"] for row in live}
        named = {row.id: row for row in conn.execute(told.where(jobs.c.id.in_(ids)))}
    return [
        LiveRun(**row, title=job.title, owner=job.owner, movement=job.movement)
        for row in live
        if (job := named.get(row["job_id"]))
    ]


def runs_by_worker(db: Database) -> dict[str, int]:
    """How many runs each worker has, whosever jobs they are."""
    statement = sa.select(runs.c.worker, sa.func.count()).where(runs.c.ended_at.is_(None))
    with db.read() as conn:
        return {str(name): int(count) for name, count in conn.execute(statement.group_by(runs.c.worker))}


def list_cooldowns(db: Database) -> list[Cooldown]:
    """The endpoints in cooldown, those that wait longest last."""
    columns = (cooldowns.c.endpoint, cooldowns.c.until, cooldowns.c.reason)
    statement = sa.select(*columns).where(cooldowns.c.until > wall_clock()).order_by(cooldowns.c.until)
    with db.read() as conn:
        return [Cooldown(**row) for row in conn.execute(statement).mappings()]
