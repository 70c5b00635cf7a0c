"""Reading the transcript. Appending to it is a run's checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.models import messages, tool_calls
from storage.prepared import MOST_ROWS, Prepared
from storage.records import DoneCall, Message
from storage.text import clean_text

Value = TypeVar("Value")
_PAGE = 20
MOST_PINNED = 32  # messages that a visit begins with: its system message and the blocks of its head
_DONE = (tool_calls.c.message_seq.label("seq"), tool_calls.c.name, tool_calls.c.arguments)
_COLUMNS: list[sa.Column[Any]] = [messages.c[name] for name in Message.__slots__]
_AFTER = Prepared(
    sa.select(*_COLUMNS)
    .where(messages.c.job_id == sa.bindparam("p_job"), messages.c.seq > sa.bindparam("p_after"))
    .order_by(messages.c.seq)
    .limit(sa.bindparam("p_limit", type_=sa.Integer())),
    returning=_COLUMNS,
)
_BEFORE = sa.tuple_(tool_calls.c.message_seq, tool_calls.c.position) < sa.tuple_(
    sa.bindparam("p_seq", type_=sa.Integer()), sa.bindparam("p_position", type_=sa.Integer())
)
_NEWEST_CALLS = Prepared(
    sa.select(*_DONE, tool_calls.c.position)
    .where(tool_calls.c.job_id == sa.bindparam("p_job"), tool_calls.c.name == sa.bindparam("p_name"))
    .where(tool_calls.c.state == "done", tool_calls.c.is_error.is_(False), _BEFORE)
    .order_by(tool_calls.c.message_seq.desc(), tool_calls.c.position.desc())
    .limit(_PAGE),
    returning=(*_DONE, tool_calls.c.position),
)


def load_view(db: Database, job_id: str, visit_seq: int, tail_seq: int, summary_seq: int) -> list[Message]:
    """The rows of the present movement's context: its system and head messages, the summary, the kept turns.

    Reads only these, whatever the length of the transcript before and between them: each part is a range of its own.
    """
    with db.read() as conn:
        return load_view_in(conn, job_id, visit_seq, tail_seq, summary_seq)


def load_view_in(
    conn: Connection, job_id: str, visit_seq: int, tail_seq: int, summary_seq: int
) -> list[Message]:
    """The same as the caller's transaction sees it."""
    kept_from = max(visit_seq, tail_seq)
    parts = [messages.c.seq >= kept_from]
    if visit_seq < kept_from:
        pinned = messages.c.seq.between(visit_seq, min(visit_seq + MOST_PINNED, kept_from) - 1)
        parts.append(sa.and_(pinned, messages.c.kind.in_(("system", "head"))))
    if summary_seq < kept_from:
        parts.append(messages.c.seq == summary_seq)
    ranges = [sa.select(*_COLUMNS).where(messages.c.job_id == job_id, part) for part in parts]
    found = conn.execute(sa.union_all(*ranges)).mappings()
    return sorted((Message(**row) for row in found), key=lambda message: message.seq)


def list_messages(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[Message]:
    """Messages with seq > `after`, in order."""
    values = {"p_job": job_id, "p_after": after, "p_limit": MOST_ROWS if limit is None else limit}
    with db.read() as conn:
        return [Message(**row._asdict()) for row in _AFTER.all(conn, values)]


def find_messages(
    db: Database, job_id: str, text: str, *, first: int, before: int | None, limit: int
) -> list[Message]:
    """Messages from seq `first` on whose text, or a call's arguments, contain `text`; newest first.

    The case of ASCII letters does not matter. Calls of `recall` itself are passed over.
    """
    calls = sa.select(tool_calls.c.message_seq).where(
        tool_calls.c.job_id == job_id,
        tool_calls.c.name != "recall",
        tool_calls.c.arguments.icontains(clean_text(text), autoescape=True),
    )
    found = sa.or_(messages.c.content.icontains(clean_text(text), autoescape=True), messages.c.seq.in_(calls))
    where = [
        messages.c.job_id == job_id,
        messages.c.seq >= first,
        messages.c.kind.in_(("assistant", "tool", "gap")),
    ]
    if before is not None:
        where.append(messages.c.seq < before)
    statement = sa.select(*_COLUMNS).where(*where, found).order_by(messages.c.seq.desc()).limit(limit)
    with db.read() as conn:
        return [Message(**row) for row in conn.execute(statement).mappings()]


def first_head_block(db: Database, job_id: str, block: str) -> str | None:
    """The text of this block as the job's first movement was shown it."""
    heads = _select(db, job_id, sa.and_(messages.c.seq <= _PAGE, messages.c.kind == "head"))
    return next((row.content for row in heads if (row.extra or {}).get("block") == block), None)


def newest_call(
    db: Database, job_id: str, name: str, read: Callable[[str], Value | None]
) -> tuple[int, Value] | None:
    """The newest call of this tool that had a good result and whose arguments `read` takes: (seq of its message, value).

    `read` gives None for arguments to pass over. Reads backwards, no further than needed.
    """
    before = MOST_ROWS, 0
    with db.read() as conn:
        while True:
            given = {"p_job": job_id, "p_name": name, "p_seq": before[0], "p_position": before[1]}
            page = _NEWEST_CALLS.all(conn, given)
            for call in page:
                if (value := read(call.arguments)) is not None:
                    return call.seq, value
            if len(page) < _PAGE:
                return None
            before = page[-1].seq, page[-1].position


def good_calls(db: Database, job_id: str, names: Sequence[str]) -> list[DoneCall]:
    """Every call of these tools that had a good result, in order."""
    # Sorted here: asked for this order, SQLite reads every call of the job in it.
    columns = (*_DONE, tool_calls.c.position)
    statement = _good_calls(job_id, names).with_only_columns(*columns)
    with db.read() as conn:
        found = sorted(conn.execute(statement).all(), key=lambda row: (row.seq, row.position))
    return [DoneCall(row.seq, row.name, row.arguments) for row in found]


def _good_calls(job_id: str, names: Sequence[str]) -> sa.Select[Any]:
    return sa.select(*_DONE).where(
        tool_calls.c.job_id == job_id,
        tool_calls.c.name.in_(names),
        tool_calls.c.state == "done",
        tool_calls.c.is_error.is_(False),
    )


def any_gap(db: Database, job_id: str, after: int, fits: Callable[[dict[str, Any]], bool]) -> bool:
    """Whether what is noted beside a user message (reminder, comments) with seq > `after` fits. Reads no further than that."""
    statement = (
        sa.select(messages.c.extra)
        .where(
            messages.c.job_id == job_id,
            messages.c.seq > after,
            messages.c.kind == "gap",
            messages.c.extra.isnot(None),
        )
        .order_by(messages.c.seq)
    )
    with db.read() as conn:
        return any(map(fits, conn.execution_options(yield_per=_PAGE).execute(statement).scalars()))


def _select(
    db: Database, job_id: str, where: sa.ColumnElement[bool], limit: int | None = None
) -> list[Message]:
    statement = (
        sa.select(*_COLUMNS).where(messages.c.job_id == job_id, where).order_by(messages.c.seq).limit(limit)
    )
    with db.read() as conn:
        return [Message(**row) for row in conn.execute(statement).mappings()]
