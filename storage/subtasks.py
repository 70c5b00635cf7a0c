"""Parents and children.

`children_open` of a parent is always the number of its children that have not ended. The transaction that ends a child
also counts it down: it is the only kind that touches two jobs' rows, and it takes the child's first, then the parent's.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.errors import LeaseLost, RequestPending, TooManySubtasks
from storage.history import append_events
from storage.jobs import JobRow, clean_json_values, insert_new_row, job_with_key
from storage.models import TERMINAL_STATES, jobs
from storage.records import NewEvent, RunRef


def insert_child_if_run_owns(
    db: Database,
    run: RunRef,
    values: dict[str, Any],
    instruction: str,
    piece: dict[str, Any],
    *,
    event: NewEvent,
    most: int,
) -> None:
    """Inserts a child of the run's job, if the run still owns it, and counts it, in one transaction.

    Raises LeaseLost, RequestPending (the parent is to be cancelled), or TooManySubtasks (it has `most` already); then
    nothing is written.
    """
    with db.write() as conn:
        counted = conn.execute(
            sa.update(jobs)
            .where(
                jobs.c.id == run.job_id,
                jobs.c.run_id == run.run_id,
                jobs.c.cancel_requested.is_(False),
                jobs.c.children_total < most,
            )
            .values(
                children_open=jobs.c.children_open + 1,
                children_total=jobs.c.children_total + 1,
                event_seq=jobs.c.event_seq + 1,
                updated_at=wall_clock(),
            )
            .returning(jobs.c.event_seq, jobs.c.updated_at)
        ).one_or_none()
        if counted is None:
            raise _refusal(conn, run, most)
        values = clean_json_values(values) | {"parent_id": run.job_id}
        insert_new_row(conn, values, instruction, piece, event)
        begun = NewEvent("subtask", "agent", data={"job": values["id"], "title": values["title"]})
        append_events(
            conn, run.job_id, [begun], last_seq=counted.event_seq, now=counted.updated_at, run_id=run.run_id
        )
        crash_point(CrashPoint.SUBTASK_COMMITTING)
    crash_point(CrashPoint.SUBTASK_COMMITTED)


def _refusal(conn: Connection, run: RunRef, most: int) -> Exception:
    found = conn.execute(
        sa.select(jobs.c.run_id, jobs.c.cancel_requested).where(jobs.c.id == run.job_id)
    ).one_or_none()
    if found is None or found.run_id != run.run_id:
        return LeaseLost(run.job_id, run.run_id)
    if found.cancel_requested:
        return RequestPending(run.job_id, cancel=True)
    return TooManySubtasks(run.job_id, most)


def child_with_key(db: Database, parent_id: str, owner: str, key: str) -> str | None:
    """The parent's child that was begun with this idempotency key."""
    with db.read() as conn:
        found = job_with_key(conn, owner, key)
        mine = sa.select(jobs.c.id).where(jobs.c.id == found, jobs.c.parent_id == parent_id)
        return None if found is None else conn.execute(mine).scalar_one_or_none()


def list_children(db: Database, parent_id: str) -> list[JobRow]:
    """Every child's row, in the order in which they were begun."""
    statement = sa.select(jobs).where(jobs.c.parent_id == parent_id).order_by(jobs.c.id)
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(statement)]


def unfinished_children(db: Database, parent_id: str) -> list[str]:
    """The ids of the children that have not ended and that nobody has asked to cancel."""
    statement = sa.select(jobs.c.id).where(
        jobs.c.parent_id == parent_id,
        jobs.c.state.not_in(TERMINAL_STATES),
        jobs.c.cancel_requested.is_(False),
    )
    with db.read() as conn:
        return list(conn.execute(statement.order_by(jobs.c.id)).scalars())


_SPENDING = (
    jobs.c.id, jobs.c.parent_id, jobs.c.state, jobs.c.steps, jobs.c.prompt_tokens, jobs.c.completion_tokens,
    jobs.c.cost, jobs.c.active_seconds, jobs.c.max_steps, jobs.c.max_tokens, jobs.c.max_cost, jobs.c.max_seconds,
)  # fmt: skip


def list_descendants(db: Database, job_id: str) -> list[JobRow]:
    """Children, their children and so on: state, spending and limits of each."""
    family = sa.select(*_SPENDING).where(jobs.c.parent_id == job_id).cte("family", recursive=True)
    family = family.union_all(sa.select(*_SPENDING).join(family, jobs.c.parent_id == family.c.id))
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(sa.select(family))]


def list_family(db: Database, job_id: str, limit: int) -> list[JobRow]:
    """Children, their children and so on, a parent before its children: whole rows, the first `limit` of them."""
    first = sa.select(jobs.c.id, jobs.c.depth).where(jobs.c.parent_id == job_id)
    family = first.cte("family", recursive=True)
    family = family.union_all(
        sa.select(jobs.c.id, jobs.c.depth).join(family, jobs.c.parent_id == family.c.id)
    )
    statement = sa.select(jobs).join(family, jobs.c.id == family.c.id)
    with db.read() as conn:
        rows = conn.execute(statement.order_by(jobs.c.depth, jobs.c.id).limit(limit))
        return [row._asdict() for row in rows]


def cascades_pending(db: Database, limit: int) -> list[str]:
    """Cancelled jobs, and those about to be, whose canceller may have died before it reached all children."""
    with db.read() as conn:
        found = sa.select(jobs.c.id).where(jobs.c.cascade_pending).order_by(jobs.c.id).limit(limit)
        return list(conn.execute(found).scalars())


def end_cascade(db: Database, job_id: str) -> None:
    """All children were reached. A job that is still running keeps the mark until it has ended: it may have begun more."""
    with db.write() as conn:
        conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == job_id, jobs.c.cascade_pending, jobs.c.run_id.is_(None))
            .values(cascade_pending=False)
        )
