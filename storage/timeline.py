"""What happened when, without what was said: the newest part of a job's past, or the part before a place."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database
from storage.models import messages, runs, tool_calls


@dataclass(frozen=True, slots=True)
class Moment:
    """A message of the transcript, by its place only. Of a tool's result, when its call was made."""

    seq: int
    role: str
    kind: str
    tool_name: str | None
    is_error: bool
    tokens: int
    created_at: float
    called_at: float | None


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result."""

    name: str
    state: str
    started_at: float | None


def moments_before(db: Database, job_id: str, before: int | None, limit: int) -> list[Moment]:
    """The last `limit` messages with seq < `before` (None: of all), newest first."""
    names = [name for name in Moment.__slots__ if name != "called_at"]
    columns = [messages.c[name] for name in names]
    statement = (
        sa.select(*columns, tool_calls.c.started_at.label("called_at"))
        .join_from(
            messages,
            tool_calls,
            sa.and_(
                tool_calls.c.job_id == messages.c.job_id, tool_calls.c.call_id == messages.c.tool_call_id
            ),
            isouter=True,
        )
        .where(messages.c.job_id == job_id)
        .order_by(messages.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        statement = statement.where(messages.c.seq < before)
    with db.read() as conn:
        return [Moment(**row) for row in conn.execute(statement).mappings()]


def open_call(db: Database, job_id: str, message_seq: int) -> OpenCall | None:
    """The first call of a message that has no result yet."""
    statement = (
        sa.select(tool_calls.c.name, tool_calls.c.state, tool_calls.c.started_at)
        .where(
            tool_calls.c.job_id == job_id,
            tool_calls.c.message_seq >= message_seq,
            tool_calls.c.state == "open",
        )
        .order_by(tool_calls.c.message_seq, tool_calls.c.position)
        .limit(1)
    )
    with db.read() as conn:
        row = conn.execute(statement).one_or_none()
        return None if row is None else OpenCall(**row._mapping)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who works on a job now."""

    worker: str
    attempt: int
    claimed_at: float
    lease_expires_at: float


def holder_of(db: Database, run_id: str | None) -> Holder | None:
    """The run that owns a job; None where none does."""
    if run_id is None:
        return None
    columns = [runs.c[name] for name in Holder.__slots__]
    with db.read() as conn:
        row = conn.execute(sa.select(*columns).where(runs.c.id == run_id)).one_or_none()
        return None if row is None else Holder(**row._mapping)
