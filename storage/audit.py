"""The audit log: who did what, when and through which door. Records are added, never changed:
triggers refuse it. They go by age alone, none within 30 days."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database, wall_clock
from storage.models import audit_log
from storage.prepared import Prepared
from storage.text import clean_json, clean_text

LONGEST_TEXT = 500
# What could end a line, or steer a terminal that shows the log: C0, DEL, C1, and the separators of lines and directions.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A record to add. `actor` is an owner or a worker, `credential` the id of a token or session, never itself."""

    kind: str
    actor: str
    via: str  # cli | api | page | worker
    job_id: str | None = None
    credential: str | None = None
    address: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A record as it is kept; `at` is in epoch seconds of the database."""

    id: int
    at: float
    kind: str
    actor: str
    via: str
    credential: str | None
    address: str | None
    job_id: str | None
    data: dict[str, Any] | None


_COLUMNS = [audit_log.c[name] for name in AuditRow.__slots__]
_GIVEN = {name: sa.bindparam(f"p_{name}", type_=audit_log.c[name].type) for name in AuditRecord.__slots__}
_ADD = Prepared(sa.insert(audit_log).values(at=wall_clock(), **_GIVEN))


def add_record(conn: Connection, record: AuditRecord) -> None:
    """Adds the record in the caller's transaction: it is there exactly if what it tells of is.

    Control characters are escaped, and texts cut at 500 characters.
    """
    _ADD.run(conn, {f"p_{name}": plain(getattr(record, name)) for name in AuditRecord.__slots__})


def add_records(db: Database, *records: AuditRecord) -> None:
    """Adds records in a transaction of their own; none: none."""
    if not records:
        return
    with db.write() as conn:
        for record in records:
            add_record(conn, record)


def list_records(
    db: Database,
    limit: int,
    before: int | None = None,
    *,
    kind: str | None = None,
    actor: str | None = None,
    job_id: str | None = None,
) -> list[AuditRow]:
    """Newest first, those with an id < `before`."""
    given = {audit_log.c.kind: kind, audit_log.c.actor: actor, audit_log.c.job_id: job_id}
    where = [column == clean_text(value) for column, value in given.items() if value is not None]
    if before is not None:
        where.append(audit_log.c.id < before)
    statement = sa.select(*_COLUMNS).where(*where).order_by(audit_log.c.id.desc()).limit(limit)
    with db.read() as conn:
        return [AuditRow(**row) for row in conn.execute(statement).mappings()]


def remove_old(db: Database, older_than_seconds: float, limit: int = 1000) -> int:
    """Removes the oldest records of that age, at most `limit`; returns how many.

    It is the only way by which records go. The database's own triggers refuse it for those younger than 30 days.
    """
    # The first ones by id are the oldest: no index over the times is needed, and no more is read.
    first = sa.select(audit_log.c.id, audit_log.c.at).order_by(audit_log.c.id).limit(limit).subquery()
    with db.read() as conn:  # most rounds find nothing, and must not cost a write
        old = sa.select(first.c.id).where(first.c.at < wall_clock() - older_than_seconds)
        found = list(conn.execute(old).scalars())
    if not found:
        return 0
    with db.write() as conn:
        return conn.execute(sa.delete(audit_log).where(audit_log.c.id.in_(found))).rowcount


def plain(value: Any) -> Any:
    """`value` with every text in it on one line, printable and not too long."""
    if isinstance(value, str):
        text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", clean_text(value[: LONGEST_TEXT + 1]))
        return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    if isinstance(value, dict):
        return {plain(str(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return clean_json(value)
