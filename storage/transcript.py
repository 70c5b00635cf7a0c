"""Reading the transcript. Appending to it is a run's checkpoint."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from storage.engine import Database
from storage.models import messages
from storage.records import Message


def load_view(db: Database, job_id: str, visit_seq: int, tail_seq: int, summary_seq: int) -> list[Message]:
    """The rows of the present movement's context: its system and head messages, the summary, the kept turns.

    Reads only these, whatever the length of the transcript before them.
    """
    pinned = sa.and_(messages.c.seq >= visit_seq, messages.c.kind.in_(("system", "head")))
    kept = messages.c.seq >= max(visit_seq, tail_seq)
    summary = messages.c.seq == summary_seq
    return _select(db, job_id, sa.or_(kept, pinned, summary))


def list_messages(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[Message]:
    """Messages with seq > `after`, in order."""
    return _select(db, job_id, messages.c.seq > after, limit)


def _select(
    db: Database, job_id: str, where: sa.ColumnElement[bool], limit: int | None = None
) -> list[Message]:
    columns: list[sa.Column[Any]] = [messages.c[name] for name in Message.__slots__]
    statement = (
        sa.select(*columns).where(messages.c.job_id == job_id, where).order_by(messages.c.seq).limit(limit)
    )
    with db.read() as conn:
        return [Message(**row) for row in conn.execute(statement).mappings()]
