"""Figures of the whole installation, for monitoring: each query reads an index, or is asked rarely."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database, wall_clock
from storage.models import STATES, cooldowns, jobs, runs, workers

MOST_COOLDOWNS = 50  # endpoints that are told of


@dataclass(frozen=True, slots=True)
class Load:
    """What runs and waits now. Times are in seconds."""

    jobs: dict[str, int]  # by state, every state
    queues: dict[
        str, tuple[int, float]
    ]  # due jobs, and how long the longest due of them has been, by kind of work
    held: int  # due, but held by a limit
    runs: int
    workers: int
    slots: int
    sandboxes: dict[str, int]  # workers by their sandbox's level
    cooldowns: dict[str, float]  # seconds left, by endpoint


@dataclass(frozen=True, slots=True)
class Spend:
    """Sums over all jobs that are stored."""

    steps: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


def load(db: Database, fresh_seconds: float) -> Load:
    """`fresh_seconds`: a worker that was not seen for so long is not counted."""
    by_state = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
    held = sa.select(sa.func.count()).where(jobs.c.state == "queued", jobs.c.held_for > "")
    live_runs = sa.select(sa.func.count()).select_from(runs).where(runs.c.ended_at.is_(None))
    live = sa.select(workers.c.concurrency, workers.c.sandbox).where(
        workers.c.stopped_at.is_(None), workers.c.seen_at > wall_clock() - fresh_seconds
    )
    cooling = sa.select(cooldowns.c.endpoint, cooldowns.c.until - wall_clock())
    cooling = cooling.where(cooldowns.c.until > wall_clock()).order_by(cooldowns.c.until.desc())
    with db.read() as conn:
        counted = {str(state): int(count) for state, count in conn.execute(by_state)}
        queues = {name: _queue(conn, due_at, *waits) for name, (due_at, waits) in _QUEUES.items()}
        processes = conn.execute(live).all()
        return Load(
            jobs={state: counted.get(state, 0) for state in STATES},
            queues=queues,
            held=conn.execute(held).scalar_one(),
            runs=conn.execute(live_runs).scalar_one(),
            workers=len(processes),
            slots=sum(process.concurrency for process in processes),
            sandboxes=dict(Counter(_level(process.sandbox) for process in processes)),
            cooldowns={
                endpoint: float(left) for endpoint, left in conn.execute(cooling.limit(MOST_COOLDOWNS))
            },
        )


_FREE = (jobs.c.held_for == "", jobs.c.run_id.is_(None))
_QUEUES: dict[str, tuple[sa.Column[Any], tuple[sa.ColumnElement[bool], ...]]] = {
    "agent": (jobs.c.available_at, (jobs.c.state == "queued", *_FREE)),
    "context": (jobs.c.available_at, (jobs.c.state == "compressing", *_FREE)),
    "summary": (jobs.c.summary_due_at, (jobs.c.summary_state == "pending", jobs.c.summary_run_id.is_(None))),
}


def _queue(conn: Connection, due_at: sa.Column[Any], *waits: sa.ColumnElement[bool]) -> tuple[int, float]:
    statement = sa.select(sa.func.count(), wall_clock() - sa.func.min(due_at)).where(
        *waits, due_at <= wall_clock()
    )
    count, age = conn.execute(statement).one()
    return int(count), max(0.0, float(age or 0.0))


def _level(described: str) -> str:
    """`bwrap`, `landlock` or `none`, of a worker's description of its sandbox."""
    return described.partition(":")[0].split(" ")[0]


def spend(db: Database) -> Spend:
    """Reads every job's row: not to be asked more than now and then."""
    columns = (jobs.c.steps, jobs.c.prompt_tokens, jobs.c.completion_tokens, jobs.c.cost)
    with db.read() as conn:
        row = conn.execute(sa.select(*(sa.func.coalesce(sa.func.sum(column), 0) for column in columns))).one()
    return Spend(int(row[0]), int(row[1]), int(row[2]), float(row[3]))
