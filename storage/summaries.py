"""Summaries: written in the transaction of the run that made them, numbered from 1 within their job."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.models import summaries
from storage.prepared import Prepared
from storage.records import Message, NewSummary, Summary
from storage.text import clean_text

_ADD = Prepared(
    sa.insert(summaries),
    columns=("job_id", "number", "visit", "message_seq", "created_at", *NewSummary.__slots__),
)


def add_summary(
    conn: Connection,
    job_id: str,
    new: NewSummary,
    number: int,
    *,
    visit: int,
    now: float,
    message: Message | None = None,
) -> None:
    """Records a summary, with the message that shows it where there is one. The caller holds the job's row."""
    values: dict[str, Any] = {name: getattr(new, name) for name in NewSummary.__slots__}
    values |= {
        "content": clean_text(new.content),
        "model": None if new.model is None else clean_text(new.model),
    }
    seq = None if message is None else message.seq
    values |= {"job_id": job_id, "number": number, "visit": visit, "message_seq": seq, "created_at": now}
    _ADD.run(conn, values)


def list_summaries(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[Summary]:
    """The job's summaries with number > `after`, in order."""
    statement = (
        sa.select(summaries)
        .where(summaries.c.job_id == job_id, summaries.c.number > after)
        .order_by(summaries.c.number)
        .limit(limit)
    )
    with db.read() as conn:
        return [Summary(**row) for row in conn.execute(statement).mappings()]


def summaries_of_messages(db: Database, job_id: str, seqs: Collection[int]) -> list[Summary]:
    """Those that stand in the transcript as these messages."""
    statement = sa.select(summaries).where(
        summaries.c.job_id == job_id, summaries.c.message_seq.in_(list(seqs))
    )
    with db.read() as conn:
        return [Summary(**row) for row in conn.execute(statement).mappings()]


def summaries_covering(db: Database, job_id: str, first: int, last: int) -> list[tuple[int, int, int]]:
    """(first seq, last seq, number) of the compactions that took rows between `first` and `last` out of the context."""
    statement = (
        sa.select(summaries.c.first_seq, summaries.c.last_seq, summaries.c.number)
        .where(
            summaries.c.job_id == job_id,
            summaries.c.kind == "compaction",
            summaries.c.last_seq >= first,
            summaries.c.first_seq <= last,
        )
        .order_by(summaries.c.number)
    )
    with db.read() as conn:
        return [(row.first_seq, row.last_seq, row.number) for row in conn.execute(statement)]
