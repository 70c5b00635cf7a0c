"""Which job a new one follows, and which ones wait for what they are to inherit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database, wall_clock
from storage.jobs import JobRow
from storage.models import TERMINAL_STATES, jobs
from storage.text import clean_text

KEY = ("task_type", "task_identifier", "repository", "user")
BY_ITSELF = ("succeeded", "failed", "aborted")  # a cancelled job is followed only where it is named


def newest_predecessor(db: Database, owner: str, key: dict[str, str | None]) -> JobRow | None:
    """The owner's newest job with this key that succeeded, failed or aborted. A part that is missing fits nothing."""
    if not key["task_identifier"] or None in key.values():
        return None
    same = (jobs.c[name] == clean_text(str(value)) for name, value in key.items())
    statement = (
        sa.select(jobs)
        .where(jobs.c.owner == clean_text(owner), *same, jobs.c.state.in_(BY_ITSELF))
        .order_by(jobs.c.id.desc())
        .limit(1)
    )
    return _one(db, statement)


def ended_job(db: Database, owner: str, job_id: str) -> JobRow | None:
    """This job, if it is the owner's and has ended."""
    mine = sa.and_(jobs.c.id == clean_text(job_id), jobs.c.owner == clean_text(owner))
    return _one(db, sa.select(jobs).where(mine, jobs.c.state.in_(TERMINAL_STATES)))


def any_job(db: Database, job_id: str) -> JobRow | None:
    """The job's row, or None where it was deleted."""
    return _one(db, sa.select(jobs).where(jobs.c.id == job_id))


def followers_waiting_for(db: Database, job_id: str) -> list[str]:
    """Jobs that wait for this one's summary, oldest first."""
    waiting = sa.select(jobs.c.id).where(jobs.c.state == "inheriting", jobs.c.inherits_from == job_id)
    with db.read() as conn:
        return list(conn.execute(waiting.order_by(jobs.c.id)).scalars())


def followers_to_go_on(db: Database, longest_wait: float, limit: int) -> list[str]:
    """Jobs that wait for a summary which is no longer pending, or have waited for `longest_wait` seconds."""
    before = jobs.alias("before")
    statement = (
        sa.select(jobs.c.id)
        .join_from(jobs, before, before.c.id == jobs.c.inherits_from, isouter=True)
        .where(
            jobs.c.state == "inheriting",
            sa.or_(
                sa.func.coalesce(before.c.summary_state, "none") != "pending",
                jobs.c.created_at <= wall_clock() - longest_wait,
            ),
        )
        .order_by(jobs.c.id)
        .limit(limit)
    )
    with db.read() as conn:
        return list(conn.execute(statement).scalars())


def row_in(conn: Connection, job_id: str) -> JobRow | None:
    """The job's row as the transaction sees it, not locked."""
    row = conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).one_or_none()
    return None if row is None else row._asdict()


def _one(db: Database, statement: sa.Select[Any]) -> JobRow | None:
    with db.read() as conn:
        row = conn.execute(statement).one_or_none()
        return None if row is None else row._asdict()
