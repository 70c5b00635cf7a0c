"""What those who follow jobs from outside ask again and again: cheap enough to poll."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database
from storage.live import IS_LIVE
from storage.models import TERMINAL_STATES, jobs, live_replies, tool_calls
from storage.text import clean_text


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: the last number of its history and of its transcript, both without gaps, and its state."""

    event_seq: int
    message_seq: int
    state: str
    live_at: float = 0.0  # when its worker last told of the reply that is being written; 0: none is told of

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL_STATES


def progress_of(db: Database, job_ids: Collection[str]) -> dict[str, Progress]:
    """The progress of those of the jobs that exist, in one query."""
    columns = (jobs.c.id, jobs.c.event_seq, jobs.c.total_messages, jobs.c.state, live_replies.c.told_at)
    statement = sa.select(*columns).join_from(jobs, live_replies, IS_LIVE, isouter=True)
    with db.read() as conn:
        rows = conn.execute(statement.where(jobs.c.id.in_(job_ids)))
        return {
            row.id: Progress(row.event_seq, row.total_messages, row.state, row.told_at or 0.0) for row in rows
        }


@dataclass(frozen=True, slots=True)
class CallRow:
    """A tool call: `state` is open, parked or done; its result is the message with seq `result_seq`."""

    message_seq: int
    position: int
    call_id: str
    name: str
    arguments: str
    state: str
    is_error: bool | None
    result_seq: int | None
    started_at: float | None
    ended_at: float | None


_CALL = [tool_calls.c[name] for name in CallRow.__slots__]


def list_tool_calls(db: Database, job_id: str, after: tuple[int, int], limit: int) -> list[CallRow]:
    """Calls after this (message_seq, position), in the order in which the model made them."""
    key = sa.tuple_(tool_calls.c.message_seq, tool_calls.c.position)
    statement = (
        sa.select(*_CALL)
        .where(tool_calls.c.job_id == clean_text(job_id), key > sa.tuple_(*map(sa.literal, after)))
        .order_by(tool_calls.c.message_seq, tool_calls.c.position)
        .limit(limit)
    )
    with db.read() as conn:
        return [CallRow(**row) for row in conn.execute(statement).mappings()]
