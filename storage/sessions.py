"""Login codes and the sessions that they are exchanged for, both kept as hashes. Times are the database's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import sqlalchemy as sa

from storage.audit import AuditRecord, add_record
from storage.engine import Database, wall_clock
from storage.models import login_codes, sessions
from storage.text import clean_text

KEEP_ENDED_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session without its secret. Times are epoch seconds."""

    id: str
    owner: str
    scopes: list[str]
    created_at: float
    seen_at: float
    expires_at: float


_COLUMNS = [sessions.c[name] for name in SessionRow.__slots__]


def insert_login_code(
    db: Database, digest: str, *, owner: str, scopes: list[str], lifetime: float, audit: AuditRecord
) -> float:
    """Stores a code that can be used once within `lifetime` seconds; returns until when. Old ones go."""
    with db.write() as conn:
        conn.execute(
            sa.delete(login_codes).where(login_codes.c.expires_at < wall_clock() - KEEP_ENDED_SECONDS)
        )
        add_record(conn, audit)
        values = {"hash": digest, "owner": clean_text(owner), "scopes": scopes, "created_at": wall_clock()}
        statement = sa.insert(login_codes).values(**values, expires_at=wall_clock() + lifetime)
        until: float = conn.execute(statement.returning(login_codes.c.expires_at)).scalar_one()
    return until


def exchange_login_code(
    db: Database,
    code_digest: str,
    session_id: str,
    session_digest: str,
    lifetime: float,
    *,
    audit: AuditRecord,
) -> SessionRow | None:
    """Uses the code up and makes a session of `lifetime` seconds for its owner, both or neither.

    `audit` is completed with whom it lets in. None where the code is unknown, used or expired. Of two at the same time, one gets the session.
    """
    usable = sa.and_(
        login_codes.c.hash == code_digest,
        login_codes.c.used_at.is_(None),
        login_codes.c.expires_at > wall_clock(),
    )
    with db.read() as conn:  # a guess must not cost a write
        if conn.execute(sa.select(login_codes.c.owner).where(usable)).first() is None:
            return None
    used = sa.update(login_codes).where(usable).values(used_at=wall_clock())
    with db.write() as conn:
        row = conn.execute(used.returning(login_codes.c.owner, login_codes.c.scopes)).one_or_none()
        if row is None:
            return None
        conn.execute(sa.delete(sessions).where(sessions.c.expires_at < wall_clock() - KEEP_ENDED_SECONDS))
        made = conn.execute(
            sa.insert(sessions)
            .values(
                id=session_id,
                hash=session_digest,
                owner=row.owner,
                scopes=row.scopes,
                created_at=wall_clock(),
                seen_at=wall_clock(),
                expires_at=wall_clock() + lifetime,
            )
            .returning(*_COLUMNS)
        )
        session = SessionRow(**made.mappings().one())
        add_record(conn, replace(audit, actor=session.owner, credential=session.id))
        return session


def _valid(idle_seconds: float) -> sa.ColumnElement[bool]:
    return sa.and_(
        sessions.c.revoked_at.is_(None),
        sessions.c.expires_at > wall_clock(),
        sessions.c.seen_at > wall_clock() - idle_seconds,
    )


def valid_session(db: Database, digest: str, idle_seconds: float, touch_seconds: float) -> SessionRow | None:
    """The session with this hash, unless it was revoked, has expired, or was not used for `idle_seconds`.

    Notes the use where the last noted one is `touch_seconds` ago: most requests only read.
    """
    with db.read() as conn:
        stale = sessions.c.seen_at < wall_clock() - touch_seconds
        found = conn.execute(
            sa.select(*_COLUMNS, stale.label("stale")).where(sessions.c.hash == digest, _valid(idle_seconds))
        )
        row = found.mappings().one_or_none()
    if row is None:
        return None
    if row["stale"]:
        with db.write() as conn:
            conn.execute(sa.update(sessions).where(sessions.c.id == row["id"]).values(seen_at=wall_clock()))
    return SessionRow(**{name: row[name] for name in SessionRow.__slots__})


def valid_session_ids(db: Database, session_ids: Collection[str], idle_seconds: float) -> set[str]:
    """Those of the sessions that are still valid. A stream that is open does not count as use."""
    with db.read() as conn:
        statement = sa.select(sessions.c.id).where(sessions.c.id.in_(session_ids), _valid(idle_seconds))
        return set(conn.execute(statement).scalars())


def revoke_session(db: Database, session_id: str, audit: AuditRecord) -> None:
    """Makes the session invalid from this commit on. A second time changes nothing."""
    with db.write() as conn:
        add_record(conn, audit)
        conn.execute(
            sa.update(sessions)
            .where(sessions.c.id == session_id, sessions.c.revoked_at.is_(None))
            .values(revoked_at=wall_clock())
        )
