"""Limits on how many jobs of a key (an owner, a user, a repository, a piece) run at once.

A job that is due while its key is full is *held*: `held_for` names the key, and the claim passes it over by its index,
however many there are. When a run ends, and in every sweep, the best held jobs of a key with room are let go. To
hold and to let go is judged by the same count, in transactions that exclude each other, so no limit is ever exceeded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from storage.engine import Database, wall_clock
from storage.errors import TooManyQueued
from storage.models import jobs

HELD_AT_ONCE = 100  # jobs that one statement puts aside, or lets go
KINDS = ("owner", "user", "repository", "piece")
_WAITING = ("queued", "inheriting")
LimitOf = Callable[[str, str], int | None]  # (kind, value) → how many may run; None: no limit
_CLAIMS = 0x50CF  # any constant of ours: claims under limits exclude each other on Postgres


@dataclass(frozen=True, slots=True)
class Key:
    """What jobs have in common that counts against one limit. A user is one of its owner's."""

    kind: str
    value: str
    owner: str | None = None

    def fits(self) -> list[sa.ColumnElement[bool]]:
        """For a WHERE: the jobs of the key."""
        found: list[sa.ColumnElement[bool]] = [jobs.c[self.kind] == self.value]
        return found if self.owner is None else [*found, jobs.c.owner == self.owner]


@dataclass(frozen=True, slots=True)
class Hold:
    """A key and its limit, as a held job's row names them."""

    key: Key
    limit: int

    def text(self) -> str:
        """For `held_for`."""
        return json.dumps(
            [self.key.kind, self.limit, self.key.value, self.key.owner],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def of(cls, text: str) -> Hold:
        """What `text` made."""
        kind, limit, value, owner = json.loads(text)
        return cls(Key(kind, value, owner), limit)


def holds_of(job: Mapping[str, Any] | RowMapping, limit_of: LimitOf) -> list[Hold]:
    """The limits that a job's row falls under."""
    found = []
    for kind in KINDS:
        value = job[kind]
        limit = None if value is None else limit_of(kind, value)
        if limit is not None:
            found.append(Hold(Key(kind, value, job["owner"] if kind == "user" else None), limit))
    return found


def one_at_a_time(db: Database, conn: Connection) -> None:
    """From here to its end, this transaction is the only one that counts and claims under limits.

    SQLite has one writer anyway. Nothing may be locked before: whoever waits here holds no row.
    """
    if not db.is_sqlite:
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_CLAIMS)))


def first_full(conn: Connection, state: str, holds: Sequence[Hold]) -> Hold | None:
    """The first of these limits that the jobs in `state` have reached."""
    if not holds:
        return None
    counts = [sa.func.count().filter(*hold.key.fits()) for hold in holds]
    found = conn.execute(sa.select(*counts).select_from(jobs).where(jobs.c.state == state)).one()
    return next((hold for hold, count in zip(holds, found, strict=True) if count >= hold.limit), None)


def hold(conn: Connection, hold_: Hold, among: sa.Select[Any]) -> int:
    """Puts the key's jobs aside that are among the first ones of a selection of ids; how many they were."""
    first = among.limit(HELD_AT_ONCE).subquery()
    mine = sa.select(jobs.c.id).where(jobs.c.id.in_(sa.select(first.c.id)), *hold_.key.fits())
    held = sa.update(jobs).where(jobs.c.id.in_(mine)).values(held_for=hold_.text(), updated_at=wall_clock())
    return conn.execute(held).rowcount


def let_go(
    db: Database, source: str, target: str, limit_of: LimitOf, ended: Mapping[str, Any] | None = None
) -> list[str]:
    """Lets as many held jobs go as their limits have room for; their wake-ups are to be sent.

    `ended`: only those that the end of this job's run may have made room for. Costs one look at an index where nothing
    is held. Raises StorageError.
    """
    with db.read() as conn:
        texts = _held(conn, source, None if ended is None else holds_of(ended, limit_of))
        if not texts:
            return []
        running = _running(conn, target)
    gone = []
    for text in texts:
        key = Hold.of(text).key
        limit = limit_of(key.kind, key.value)
        if limit is None or running[key] < limit:
            gone += _let_go(db, source, target, limit_of, text)
    return gone


def _held(conn: Connection, source: str, only: Collection[Hold] | None) -> list[str]:
    """What jobs are held for: each once, by going from one to the next in the index."""
    mine = [jobs.c.state == source, jobs.c.held_for > ""]
    if only is not None:
        found = sa.select(jobs.c.held_for).where(*mine, jobs.c.held_for.in_([hold.text() for hold in only]))
        return list(conn.execute(found.distinct()).scalars()) if only else []
    texts = sa.select(sa.func.min(jobs.c.held_for).label("text")).where(*mine).cte("texts", recursive=True)
    further = sa.select(sa.func.min(jobs.c.held_for)).where(
        jobs.c.state == source, jobs.c.held_for > texts.c.text
    )
    texts = texts.union_all(
        sa.select(further.correlate(texts).scalar_subquery()).where(texts.c.text.isnot(None))
    )
    return list(conn.execute(sa.select(texts.c.text).where(texts.c.text.isnot(None))).scalars())


def _running(conn: Connection, target: str) -> Counter[Key]:
    """How many jobs of each key run now."""
    columns = (jobs.c.owner, jobs.c.user, jobs.c.repository, jobs.c.piece)
    rows = conn.execute(sa.select(*columns).where(jobs.c.state == target)).mappings()
    return Counter(hold.key for row in rows for hold in holds_of(row, lambda _kind, _value: 0))


def _let_go(db: Database, source: str, target: str, limit_of: LimitOf, text: str) -> list[str]:
    """The held jobs of one key, best first: those whose other limits are full are held for these from now on."""
    waiting = sa.select(jobs).where(jobs.c.state == source, jobs.c.held_for == text)
    waiting = waiting.order_by(jobs.c.priority.desc(), jobs.c.available_at, jobs.c.id)
    mine = Hold.of(text)
    with db.write() as conn:
        one_at_a_time(db, conn)
        limit = limit_of(mine.key.kind, mine.key.value)
        room = HELD_AT_ONCE
        if limit is not None:
            room = min(room, limit - _count(conn, target, mine.key))
        gone: list[str] = []
        for _ in range(HELD_AT_ONCE):
            if len(gone) >= room:
                break
            best = conn.execute(_skipping(db, waiting.limit(1))).mappings().one_or_none()
            if best is None:
                break
            full = first_full(conn, target, holds_of(best, limit_of))
            if full is not None and full.text() != text:
                hold(conn, full, _skipping(db, waiting.with_only_columns(jobs.c.id)))
            elif full is not None:
                break
            else:
                gone.append(best["id"])
                _free(conn, best["id"])
        return gone


def _free(conn: Connection, job_id: str) -> None:
    freed = {"held_for": "", "woken_at": wall_clock(), "updated_at": wall_clock()}
    conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(freed))


def _count(conn: Connection, target: str, key: Key) -> int:
    counted = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.state == target, *key.fits())
    return conn.execute(counted).scalar_one()


def _skipping(db: Database, statement: sa.Select[Any]) -> sa.Select[Any]:
    """Rows that somebody holds are passed over, as in a claim: who waits for a row must not hold the lock of limits."""
    return statement if db.is_sqlite else statement.with_for_update(skip_locked=True)


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """How many jobs may wait for a worker; None: any number."""

    all: int | None
    of_owner: int | None


def check_room(conn: Connection, room: QueueRoom, owner: str) -> None:
    """Raises TooManyQueued where a new job of this owner would be one too many. Never counts further than that."""
    for most, whose in ((room.of_owner, owner), (room.all, None)):
        if most is not None and _waiting(conn, most, whose) >= most:
            raise TooManyQueued(most, whose)


def _waiting(conn: Connection, most: int, owner: str | None) -> int:
    waiting = sa.select(jobs.c.id).where(jobs.c.state.in_(_WAITING), jobs.c.completed_at.is_(None))
    if owner is not None:
        waiting = waiting.where(jobs.c.owner == owner)
    return conn.execute(sa.select(sa.func.count()).select_from(waiting.limit(most).subquery())).scalar_one()
