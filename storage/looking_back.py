"""A job's records read from their end, as a page shows them: the newest first, older ones on demand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from storage.engine import Database
from storage.models import comments, job_events, messages, tool_calls
from storage.observing import CallRow
from storage.records import Comment, HistoryEvent, Message

_NUMBERS = 500  # in one IN list


def messages_before(db: Database, job_id: str, before: int | None, limit: int) -> list[Message]:
    """The last `limit` messages with seq < `before` (None: of all), newest first."""
    return [
        Message(**row) for row in _before(db, messages, Message.__slots__, job_id, before=before, limit=limit)
    ]


def events_before(db: Database, job_id: str, before: int | None, limit: int) -> list[HistoryEvent]:
    """The last `limit` history rows with seq < `before` (None: of all), newest first."""
    return [
        HistoryEvent(**row)
        for row in _before(db, job_events, HistoryEvent.__slots__, job_id, before=before, limit=limit)
    ]


def _before(
    db: Database, table: sa.Table, names: Sequence[str], job_id: str, *, before: int | None, limit: int
) -> list[dict[str, Any]]:
    statement = sa.select(*(table.c[name] for name in names)).where(table.c.job_id == job_id)
    if before is not None:
        statement = statement.where(table.c.seq < before)
    with db.read() as conn:
        return [
            dict(row) for row in conn.execute(statement.order_by(table.c.seq.desc()).limit(limit)).mappings()
        ]


def messages_numbered(db: Database, job_id: str, seqs: Collection[int]) -> list[Message]:
    """The messages with these numbers, in order."""
    columns = [messages.c[name] for name in Message.__slots__]
    statement = sa.select(*columns).where(messages.c.job_id == job_id).order_by(messages.c.seq)
    found: list[Message] = []
    with db.read() as conn:
        for part in _parts(seqs):
            found += [
                Message(**row) for row in conn.execute(statement.where(messages.c.seq.in_(part))).mappings()
            ]
    return found


def comments_numbered(db: Database, job_id: str, numbers: Collection[int]) -> list[Comment]:
    """The comments with these numbers, in order."""
    statement = sa.select(comments).where(comments.c.job_id == job_id).order_by(comments.c.number)
    found: list[Comment] = []
    with db.read() as conn:
        for part in _parts(numbers):
            rows = conn.execute(statement.where(comments.c.number.in_(part))).mappings()
            found += [Comment(**row) for row in rows]
    return found


def comments_seen_with(db: Database, job_id: str, seqs: Collection[int]) -> list[Comment]:
    """The comments that were delivered with these messages."""
    statement = (
        sa.select(comments)
        .where(comments.c.job_id == job_id, comments.c.seen_seq.between(min(seqs), max(seqs)))
        .order_by(comments.c.number)
    )
    with db.read() as conn:
        found = [Comment(**row) for row in conn.execute(statement).mappings()]
    return [comment for comment in found if comment.seen_seq in seqs]


def calls_of_messages(
    db: Database, job_id: str, seqs: Collection[int], call_ids: Collection[str]
) -> list[CallRow]:
    """The calls made by these messages, and those with these ids, in the order in which the model made them."""
    columns = [tool_calls.c[name] for name in CallRow.__slots__]
    statement = sa.select(*columns).where(tool_calls.c.job_id == job_id)
    found: dict[str, CallRow] = {}
    with db.read() as conn:
        for wanted in [
            *(tool_calls.c.message_seq.in_(part) for part in _parts(seqs)),
            *(tool_calls.c.call_id.in_(part) for part in _parts(call_ids)),
        ]:
            for row in conn.execute(statement.where(wanted)).mappings():
                found[row["call_id"]] = CallRow(**row)
    return sorted(found.values(), key=lambda call: (call.message_seq, call.position))


def _parts(values: Collection[Any]) -> list[list[Any]]:
    listed = sorted(values)
    return [listed[start : start + _NUMBERS] for start in range(0, len(listed), _NUMBERS)]
