"""The database: one engine over SQLite (WAL) or Postgres (psycopg 3), with explicit reads and writes.

SQLite: every write transaction is BEGIN IMMEDIATE and goes through this process's one writer, so that threads are
served in order instead of racing for the file lock (a deferred BEGIN that upgrades later loses updates or fails
at once). Reads are plain BEGIN: in WAL they block nobody.
"""

from __future__ import annotations

import os
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.sql.functions import FunctionElement

from storage.errors import DatabaseUnavailable, DiskFull, StorageError
from storage.prepared import raise_driver_error
from storage.records import StateHooks
from storage.sqlite_writer import SqliteWriter
from storage.text import compact_json

SQLITE_POOL = 4
POSTGRES_POOL = 16
BUSY_TIMEOUT_SECONDS = 15.0
BUSY_TIMEOUT_MS = int(BUSY_TIMEOUT_SECONDS * 1000)
EAGER_SECONDS = 0.1  # of waiting for another process's commit in short steps
SHORTEST_WAIT, LONGEST_WAIT = 0.0003, 0.005  # seconds between two tries
CONNECT_TIMEOUT_SECONDS = 5
PING_AFTER_SECONDS = 1.0  # a connection that was not used for so long may be dead
_USED_AT = "sostenuto_used_at"


class wall_clock(FunctionElement[float]):  # noqa: N801 - reads as a SQL function where it is used
    """The database's wall clock as epoch seconds, also in the middle of a transaction.

    Postgres: clock_timestamp(), because now() is the transaction's start and stale after a lock wait.
    SQLite: this process's clock, through a function registered on each connection.
    """

    type = sa.Double()
    inherit_cache = True


@compiles(wall_clock, "postgresql")
def _postgres_clock(_element: wall_clock, _compiler: object, **_: object) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


@compiles(wall_clock, "sqlite")
def _sqlite_clock(_element: wall_clock, _compiler: object, **_: object) -> str:
    return "sostenuto_now()"


class Database:
    """Connections to one database. Make it in the process that uses it: it must not cross a fork."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self.url = _parse_url(url)
        self.clock = clock
        self.hooks: StateHooks | None = None  # set where an installation has some configured
        self.final_summaries = True  # a job that ends owes one
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = self._make_engine(pooled=True)
        self._lone_engine: Engine | None = None
        self._writer = SqliteWriter(partial(_writing_connection, self.engine))  # of SQLite alone

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only transaction with one consistent snapshot per statement (Postgres) or in all (SQLite)."""
        with _translated(self.url), self.engine.connect() as conn, conn.begin():
            yield conn

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Like `read`, with one consistent snapshot in all of it, on Postgres too: for many rows that belong together."""
        with _translated(self.url), self.engine.connect() as conn:
            if not self.is_sqlite:
                conn.execution_options(isolation_level="REPEATABLE READ")
            with conn.begin():
                yield conn

    @contextmanager
    def write(self, *, together: bool = False) -> Iterator[Connection]:
        """A write transaction: committed at the end of the block, rolled back on any error.

        `together`: short and frequent; on SQLite it may share its commit with others (see `SqliteWriter.write`).

        Raises DatabaseUnavailable or DiskFull. A DatabaseUnavailable raised while committing leaves open whether
        the commit happened: the caller re-reads instead of repeating.
        """
        with _translated(self.url):
            if self.is_sqlite:
                with self._writer.write(together=together) as conn:
                    yield conn
            else:
                with self.engine.begin() as conn:
                    yield conn

    @contextmanager
    def lone_write(self) -> Iterator[Connection]:
        """Like `write`, on a connection of its own outside pool and gate: heartbeats must never queue."""
        if self._lone_engine is None:
            self._lone_engine = self._make_engine(pooled=False)
        with _translated(self.url):
            if self.is_sqlite:
                with _begin_immediate(self._lone_engine) as conn:
                    yield conn
            else:
                with self._lone_engine.begin() as conn:
                    yield conn

    @contextmanager
    def schema_write(self) -> Iterator[Connection]:
        """Like `write`, for migrations: on SQLite foreign keys are off, and checked before the commit.

        A table is altered there by copying and dropping it, and the drop would delete, by ON DELETE CASCADE, every
        row that refers to it.
        """
        if not self.is_sqlite:
            with self.write() as conn:
                yield conn
            return
        engine = self._make_engine(pooled=False)
        sa.event.listen(engine, "connect", _foreign_keys_off)
        try:
            with _translated(self.url), self._writer.alone(), _begin_immediate(engine) as conn:
                yield conn
                broken = conn.exec_driver_sql("PRAGMA foreign_key_check").all()
                if broken:
                    raise StorageError(
                        f"the migration would leave {len(broken)} rows without what they refer to"
                    )
        finally:
            engine.dispose()

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """A connection of its own on which each statement is a transaction: for VACUUM, which must not be in one."""
        engine = self._make_engine(pooled=False)
        if self.is_sqlite:
            sa.event.remove(engine, "begin", _begin_sqlite)
        try:
            with _translated(self.url), self._writer.alone(), engine.connect() as conn:
                yield conn if self.is_sqlite else conn.execution_options(isolation_level="AUTOCOMMIT")
        finally:
            engine.dispose()

    def close(self) -> None:
        """Closes every connection. The database may be used again afterwards."""
        with self._writer.closed():  # a write in between would keep a connection of the pool that goes
            self.engine.dispose()
        if self._lone_engine is not None:
            self._lone_engine.dispose()

    @property
    def busy_connections(self) -> int:
        """How many connections are in use by somebody now, heartbeats' own not counted."""
        pool = self.engine.pool
        assert isinstance(pool, sa.QueuePool)
        return pool.checkedout() - self._writer.is_idle

    def _make_engine(self, *, pooled: bool) -> Engine:
        if self.is_sqlite:
            engine = sa.create_engine(
                self.url,
                pool_size=SQLITE_POOL if pooled else 1,
                max_overflow=0,
                poolclass=sa.QueuePool,
                json_serializer=compact_json,
                connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            )
            sa.event.listen(engine, "connect", self._prepare_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
            return engine
        engine = sa.create_engine(
            self.url,
            pool_size=POSTGRES_POOL if pooled else 1,
            max_overflow=0,
            pool_use_lifo=True,  # the one used last has its statements prepared
            json_serializer=compact_json,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                # A host without power is noticed within half a minute; the system's own default is two hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 25_000,
                "application_name": "sostenuto",
                "options": "-c idle_in_transaction_session_timeout=30000 -c lock_timeout=15000",
            },
        )
        sa.event.listen(engine, "checkin", _note_use)
        sa.event.listen(engine, "checkout", partial(_ping_if_idle, engine.dialect))
        return engine

    def _prepare_sqlite(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        connection.create_function("sostenuto_now", 0, self.clock)
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",  # a commit survives a power cut
            "foreign_keys=ON",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")


def _writing_connection(engine: Engine) -> Connection:
    """On which a transaction begins by waiting for the file's lock, and then waits for nothing more."""
    conn = engine.connect().execution_options(sostenuto_write=True)
    driver: Any = conn.connection.driver_connection
    driver.execute("PRAGMA busy_timeout=0")
    return conn


@contextmanager
def _begin_immediate(engine: Engine) -> Iterator[Connection]:
    with _writing_connection(engine) as conn, conn.begin():
        yield conn


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_USED_AT] = time.monotonic()


def _ping_if_idle(
    dialect: Dialect, connection: Any, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Replaces a connection that died while nobody used it; one of just now is trusted, and costs no round trip."""
    used_at = record.info.get(_USED_AT)
    if used_at is None or (time.monotonic() - used_at < PING_AFTER_SECONDS and not _has_news(connection)):
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _has_news(connection: Any) -> bool:
    """Whether the server said something that nobody asked for: as it goes, it closes its end."""
    if connection.closed:
        return True
    looking = select.poll()
    looking.register(connection.fileno(), select.POLLIN)
    return bool(looking.poll(0))


def _foreign_keys_off(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=OFF")  # has no effect inside a transaction, so it is said here


def _begin_sqlite(conn: Connection) -> None:
    driver: Any = conn.connection.driver_connection
    write = conn.get_execution_options().get("sostenuto_write")
    try:
        if write:
            _take_write_lock(driver)
        else:
            driver.execute("BEGIN")
    except sqlite3.Error as error:
        raise_driver_error(conn, error, "BEGIN")


def _take_write_lock(driver: sqlite3.Connection) -> None:
    """BEGIN IMMEDIATE, waiting for the file's lock in short steps.

    SQLite's own waits grow to 100 ms, while a commit of ours takes less than one: a process that comes back so seldom
    finds the lock taken again by another, which never had to wait, and its agents stand still.
    """
    began = time.monotonic()
    while True:
        try:
            driver.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited > BUSY_TIMEOUT_SECONDS:
                raise
            time.sleep(SHORTEST_WAIT if waited < EAGER_SECONDS else LONGEST_WAIT)


def _parse_url(url: str) -> URL:
    hint = "use sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE in SOSTENUTO_DATABASE_URL"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise StorageError("the database URL cannot be read", hint=hint) from error
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        folder = Path(str(parsed.database)).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            raise DatabaseUnavailable(
                f"the database's folder {folder} cannot be made: {why}",
                hint="choose another place with SOSTENUTO_DATA_DIR or SOSTENUTO_DATABASE_URL",
            ) from error
        return parsed
    raise StorageError(f"the database {parsed.render_as_string()} is not supported", hint=hint)


@contextmanager
def _translated(url: URL) -> Iterator[None]:
    """Turns driver errors that a user can do something about into ours; others pass."""
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseUnavailable(
            f"no free connection to {_shown(url)} within 30 s",
            hint="the database is frozen or overloaded; nothing was lost",
        ) from error
    except DBAPIError as error:
        text = (
            str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        )
        if _is_disk_full(error):
            raise DiskFull(
                f"the disk under {_shown(url)} is full ({text})",
                hint="free some space; nothing that was accepted is lost",
            ) from error
        if error.connection_invalidated or _is_outage(error):
            raise DatabaseUnavailable(
                f"the database {_shown(url)} is not available: {text}",
                hint="check that it runs and is reachable (SOSTENUTO_DATABASE_URL), then try again",
            ) from error
        raise


def _shown(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)  # libpq takes a password in the query too


def _is_disk_full(error: DBAPIError) -> bool:
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code in _SQLITE_FULL
    return getattr(error.orig, "sqlstate", None) == "53100"


# A quota or a file size limit is an I/O error to SQLite; so is a full disk under the -shm file.
_SQLITE_FULL = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
)


def _is_outage(error: DBAPIError) -> bool:
    """SQLite: locked for too long, cannot be opened, not a database; not a wrong statement, which is our own fault.

    Postgres: refused, cut (class 08), out of resources (53), shutting down (57P), lock or idle timeout (55P03, 25P03).
    """
    if type(error.orig) in (sqlite3.OperationalError, sqlite3.DatabaseError):
        return getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state is None or state[:2] in ("08", "53", "57") or state in ("55P03", "25P03")
