"""What processes tell each other: workers and their tools, endpoints in cooldown, who sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import Connection

from storage.audit import AuditRecord, add_record
from storage.engine import Database, wall_clock
from storage.models import cooldowns, locks, workers
from storage.text import clean_text

FORGET_WORKERS_SECONDS = 7 * 86_400.0


def _upsert(
    db: Database,
    conn: Connection,
    table: sa.Table,
    key: str,
    values: dict[str, Any],
    *,
    unless: sa.ColumnElement[bool] | None = None,
) -> None:
    insert = sqlite_insert if db.is_sqlite else postgres_insert
    statement = insert(table).values(values)
    conn.execute(
        statement.on_conflict_do_update(
            index_elements=[key],
            set_={k: v for k, v in values.items() if k != key},
            where=None if unless is None else sa.not_(unless),
        )
    )


def register_worker(db: Database, values: dict[str, Any], *, starting: bool = True) -> None:
    """Publishes a worker process: name, host, pid, queues, concurrency, version, sandbox level, tool catalogue,
    MCP servers, problems.

    A request to leave, made of an earlier process of that name, is forgotten where `starting`. Entries of workers that
    were not seen for a week are dropped.
    """
    now = wall_clock()
    if starting:
        values = values | {"drain_requested_at": None}
    with db.write() as conn:
        conn.execute(sa.delete(workers).where(workers.c.seen_at < wall_clock() - FORGET_WORKERS_SECONDS))
        told = {"sandbox": values["sandbox"], "queues": values["queues"]}
        add_record(conn, AuditRecord("worker_started", values["name"], "worker", data=told))
        _upsert(db, conn, workers, "name", values | {"started_at": now, "seen_at": now, "stopped_at": None})


def worker_seen(db: Database, name: str, *, stopped: bool = False) -> bool:
    """Keeps a worker's entry fresh, or marks its orderly end. True: it was asked to leave when it has no job left."""
    values: dict[str, Any] = {"seen_at": wall_clock()}
    if stopped:
        values["stopped_at"] = wall_clock()
    statement = sa.update(workers).where(workers.c.name == name).values(values)
    with db.lone_write() as conn:
        asked: float | None = conn.execute(
            statement.returning(workers.c.drain_requested_at)
        ).scalar_one_or_none()
    return asked is not None


def request_drain(db: Database, names: Sequence[str], actor: str) -> None:
    """Asks workers to take no more jobs and to leave when they have none; each hears it with its next heartbeat."""
    with db.write() as conn:
        for name in names:
            asked = sa.update(workers).where(
                workers.c.name == name, workers.c.stopped_at.is_(None), workers.c.drain_requested_at.is_(None)
            )
            if conn.execute(asked.values(drain_requested_at=wall_clock())).rowcount:
                add_record(conn, AuditRecord("worker_drained", actor, "cli", data={"worker": name}))


def live_workers(db: Database, fresh_seconds: float, *, taking: bool = False) -> list[dict[str, Any]]:
    """Workers seen within `fresh_seconds` that have not stopped; `taking`: only those that still take jobs."""
    statement = (
        sa.select(workers)
        .where(workers.c.stopped_at.is_(None), workers.c.seen_at > wall_clock() - fresh_seconds)
        .order_by(workers.c.name)
    )
    if taking:
        statement = statement.where(workers.c.drain_requested_at.is_(None))
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(statement)]


def cool_down(db: Database, endpoint: str, seconds: float, reason: str) -> None:
    """No worker calls `endpoint` for `seconds`; a longer cooldown that is set already stays."""
    with db.write() as conn:
        now: float = conn.execute(sa.select(wall_clock())).scalar_one()
        values = {"endpoint": clean_text(endpoint), "until": now + seconds, "reason": clean_text(reason)}
        # The comparison is part of the write: two workers told different times at once keep the longer one.
        _upsert(db, conn, cooldowns, "endpoint", values, unless=cooldowns.c.until >= values["until"])


def active_cooldowns(db: Database) -> dict[str, float]:
    """Endpoints that nobody should call now, with the seconds left."""
    left = (cooldowns.c.until - wall_clock()).label("left")
    with db.read() as conn:
        rows = conn.execute(sa.select(cooldowns.c.endpoint, left).where(cooldowns.c.until > wall_clock()))
        return {row.endpoint: row.left for row in rows}


def take_lock(db: Database, name: str, holder: str, seconds: float) -> bool:
    """True if `holder` holds the named lease now, having taken or renewed it for `seconds`."""
    free = sa.or_(locks.c.holder == holder, locks.c.expires_at < wall_clock())
    with db.read() as conn:
        row = conn.execute(
            sa.select(locks.c.holder, free.label("free")).where(locks.c.name == name)
        ).one_or_none()
    if row is not None and not row.free:
        return False
    with db.write() as conn:
        values = {"holder": holder, "expires_at": wall_clock() + seconds}
        taken = conn.execute(sa.update(locks).where(locks.c.name == name, free).values(values))
        if taken.rowcount == 1 or row is not None:
            return taken.rowcount == 1
        insert = (sqlite_insert if db.is_sqlite else postgres_insert)(locks).values({"name": name} | values)
        # Not rowcount: psycopg has none left after an INSERT, and a taken lease would look like a refused one.
        inserted = insert.on_conflict_do_nothing().returning(locks.c.name)
        return conn.execute(inserted).one_or_none() is not None


def drop_lock(db: Database, name: str, holder: str) -> None:
    """Gives the named lease back, so that the next holder need not wait for its end."""
    with db.write() as conn:
        conn.execute(sa.delete(locks).where(locks.c.name == name, locks.c.holder == holder))
