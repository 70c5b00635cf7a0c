"""Figures of the whole installation, for monitoring: each query reads an index, or is asked rarely."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database, wall_clock
from storage.models import STATES, jobs, runs, workers


@dataclass(frozen=True, slots=True)
class Load:
    """What runs and waits now. `queue_age` is how long the longest waiting due job has been due, in seconds."""

    jobs: dict[str, int]  # by state, every state
    queue_age: float
    runs: int
    workers: int
    slots: int


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
    oldest = sa.select(wall_clock() - sa.func.min(jobs.c.available_at)).where(
        jobs.c.state == "queued", jobs.c.available_at <= wall_clock()
    )
    live_runs = sa.select(sa.func.count()).select_from(runs).where(runs.c.ended_at.is_(None))
    live = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(workers.c.concurrency), 0)).where(
        workers.c.stopped_at.is_(None), workers.c.seen_at > wall_clock() - fresh_seconds
    )
    with db.read() as conn:
        counted = {str(state): int(count) for state, count in conn.execute(by_state)}
        age = conn.execute(oldest).scalar_one()
        running = conn.execute(live_runs).scalar_one()
        processes, slots = conn.execute(live).one()
    states = {state: counted.get(state, 0) for state in STATES}
    return Load(states, max(0.0, float(age or 0.0)), int(running), int(processes), int(slots))


def spend(db: Database) -> Spend:
    """Reads every job's row: not to be asked more than now and then."""
    columns = (jobs.c.steps, jobs.c.prompt_tokens, jobs.c.completion_tokens, jobs.c.cost)
    with db.read() as conn:
        row = conn.execute(sa.select(*(sa.func.coalesce(sa.func.sum(column), 0) for column in columns))).one()
    return Spend(int(row[0]), int(row[1]), int(row[2]), float(row[3]))
