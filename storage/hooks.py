"""Calls of hooks: written in the transaction that brings a job into a state, made by whichever worker is quickest.

A call is there from the commit until it was made, whoever dies in between: at least once. Where no hook is configured
nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database, wall_clock
from storage.models import hook_calls, jobs
from storage.records import HookCall, StateHooks
from storage.text import clean_json


def add_hook_calls(conn: Connection, hooks: StateHooks | None, job_id: str, state: str) -> None:
    """Adds the calls of a job that has just come into `state`, told as its row is now, inside the same transaction."""
    if hooks is None or not (names := hooks.names.get(state)):
        return
    row = conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).one()
    event = clean_json(hooks.describe(row._asdict()))
    conn.execute(
        sa.insert(hook_calls),
        [
            {
                "id": f"{job_id}/{row.event_seq}/{name}",
                "job_id": job_id,
                "name": name,
                "event": event,
                "free_at": row.updated_at,
            }
            for name in names
        ],
    )


def take_hook_call(db: Database, names: Sequence[str], hold_seconds: float) -> HookCall | None:
    """The longest waiting call of one of these hooks, held for the caller; None when there is none to make.

    If it is not ended in time, its caller has died and another one gets it.
    """
    free = (
        sa.select(hook_calls.c.id)
        .where(hook_calls.c.free_at <= wall_clock(), hook_calls.c.name.in_(names))
        .order_by(hook_calls.c.free_at, hook_calls.c.id)
        .limit(1)
    )
    with db.read() as conn:  # most often there is none, and nothing is locked for that
        if conn.execute(free).first() is None:
            return None
    if not db.is_sqlite:
        free = free.with_for_update(skip_locked=True)
    with db.write() as conn:
        taken = conn.execute(
            sa.update(hook_calls)
            .where(hook_calls.c.id == free.scalar_subquery())
            .values(free_at=wall_clock() + hold_seconds)
            .returning(hook_calls.c.id, hook_calls.c.job_id, hook_calls.c.name, hook_calls.c.event)
        ).one_or_none()
    return None if taken is None else HookCall(**taken._asdict())


def end_hook_call(conn: Connection, call: HookCall) -> None:
    """The call was made."""
    conn.execute(sa.delete(hook_calls).where(hook_calls.c.id == call.id))
