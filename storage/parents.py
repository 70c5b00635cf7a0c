"""What a child's end, or its retry, changes in its parent's row. The caller's transaction holds the child's row already."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import wall_clock
from storage.history import append_events
from storage.models import jobs
from storage.records import NewEvent

# The words of jobs.states and jobs.reasons that this needs; a test compares them.
CANCELLED = "cancelled"
PAUSED = "paused"
WAITING = "waiting_subtasks"
GOES_ON = "queued"
WOKEN = "subtasks_done"  # the event, and the reason


def child_ended(conn: Connection, parent_id: str) -> str | None:
    """Counts an open child down; the last one moves a waiting parent on. Once for each end of a child.

    Returns the parent if it is due now: its wake-up is to be sent after the commit. However many children end at the
    same instant, the parent's row serves one after the other, and exactly one finds none left.
    """
    row = conn.execute(
        sa.update(jobs)
        .where(jobs.c.id == parent_id)
        .values(children_open=jobs.c.children_open - 1, updated_at=wall_clock())
        .returning(
            jobs.c.children_open, jobs.c.state, jobs.c.resume_state, jobs.c.event_seq, jobs.c.updated_at
        )
    ).one()
    if row.children_open:
        return None
    values: dict[str, Any]
    if row.state == WAITING:
        end = GOES_ON
        values = {"state": end, "reason": WOKEN, "reason_data": None}
        values |= {"available_at": wall_clock(), "woken_at": wall_clock()}
    elif row.state == PAUSED and row.resume_state == WAITING:
        end = PAUSED
        values = {"resume_state": GOES_ON}
    else:  # it is busy otherwise, or has ended: it looks at its children when it comes to wait for them
        return None
    conn.execute(
        sa.update(jobs).where(jobs.c.id == parent_id).values(values | {"event_seq": row.event_seq + 1})
    )
    woken = NewEvent(WOKEN, "subtasks", row.state, end)
    append_events(conn, parent_id, [woken], last_seq=row.event_seq + 1, now=row.updated_at, run_id=None)
    return parent_id if end == GOES_ON else None


def child_reopened(conn: Connection, parent_id: str) -> None:
    """A child that had ended goes on after a retry: its parent has one more to wait for."""
    conn.execute(
        sa.update(jobs)
        .where(jobs.c.id == parent_id)
        .values(children_open=jobs.c.children_open + 1, updated_at=wall_clock())
    )
