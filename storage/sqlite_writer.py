"""All writes of this process to a SQLite file: one after the other on one connection, in the order of their arrival.

SQLite has one write lock, and a commit with its fsync takes longer than what an agent's step writes. So short writes
that wait for each other share a transaction: each is a savepoint of it, and returns when the commit of all is done. What
any of them was told to be committed is; where the commit fails, none of them is, and each hears it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from sqlalchemy.engine import Connection, Transaction

MOST_TOGETHER = 16
LOOK_SECONDS = 1.0  # after which a write that is not committed looks whether somebody is at it
LONGEST_TOGETHER = 0.005  # seconds: other processes, and heartbeats, wait for the file's lock so long


class FifoGate:
    """A lock that serves its waiters in the order of their arrival."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiters: deque[threading.Lock] = deque()
        self._held = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._held:
                self._held = True
                return
            ticket = threading.Lock()
            ticket.acquire()
            self._waiters.append(ticket)
        try:
            ticket.acquire()  # released by the holder before us: the gate is ours, still held
        except BaseException:  # interrupted: those behind us must not wait for us
            self._withdraw(ticket)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hand_on()

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is next."""
        return bool(self._waiters)

    def _hand_on(self) -> None:
        with self._mutex:
            if self._waiters:
                self._waiters.popleft().release()
            else:
                self._held = False

    def _withdraw(self, ticket: threading.Lock) -> None:
        with self._mutex:
            if ticket in self._waiters:
                self._waiters.remove(ticket)
                return
        self._hand_on()  # it was ours by then


class _Batch:
    """A transaction of one or several writes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transaction: Transaction = connection.begin()
        self.writes = 0  # that are in it
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._began = time.monotonic()

    @property
    def driver(self) -> Any:
        return self.connection.connection.driver_connection

    @property
    def may_grow(self) -> bool:
        return self.writes < MOST_TOGETHER and time.monotonic() - self._began < LONGEST_TOGETHER

    def commit(self) -> None:
        """Raises nothing: all its writers are told of an error."""
        try:
            self.transaction.commit()
        except BaseException as error:  # noqa: BLE001 - told to each of them
            self.fail(error)
        self.ended.set()

    def fail(self, error: BaseException) -> None:
        """Undoes all of it."""
        self.error = error
        with contextlib.suppress(Exception):
            self.transaction.rollback()
            if self.driver.in_transaction:  # a commit that failed may have undone it, or not
                self.driver.rollback()
        self.ended.set()


class SqliteWriter:
    """`connect` makes the one connection, when it is first needed. Thread-safe."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._gate = FifoGate()
        self._connection: Connection | None = None
        self._open: _Batch | None = None  # left by the last writer for the next, who waits in the gate

    @contextmanager
    def write(self, *, together: bool) -> Iterator[Connection]:
        """A write transaction; returns when it is committed. `together`: it may share its commit with others.

        Such a block must be short and must not swallow a database error. It may see what others have written in the
        same transaction, and is committed exactly if they are.
        """
        with self._gate:
            batch = self._entered(together=together)
            try:
                yield batch.connection
                if batch.writes:
                    batch.driver.execute("RELEASE one_write")
                batch.writes += 1
                self._leave(batch, together=together)
            except BaseException as error:
                self._undo(batch, error)
                raise
        self._wait(batch)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps this process's writers out, for a transaction on another connection."""
        with self._gate:
            self._commit_open()
            yield

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Closes the connection and keeps writers out; the next write opens another."""
        with self.alone():
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            yield

    @property
    def is_idle(self) -> bool:
        """Whether it holds a connection that nobody uses now."""
        return self._connection is not None and not self._connection.in_transaction()

    def _entered(self, *, together: bool) -> _Batch:
        """The open transaction, in a savepoint of this write's own; else a new one."""
        if not together:
            self._commit_open()
        if self._open is None:
            if self._connection is None:
                self._connection = self._connect()
            return _Batch(self._connection)
        batch, self._open = self._open, None
        try:
            batch.driver.execute("SAVEPOINT one_write")
        except BaseException as error:
            batch.fail(error)
            raise
        return batch

    def _wait(self, batch: _Batch) -> None:
        """Returns when it is committed; raises what its commit raised."""
        while not batch.ended.wait(LOOK_SECONDS):
            with self._gate:  # whoever was next may have been interrupted
                if self._open is batch:
                    self._commit_open()
        if batch.error is not None:
            raise batch.error

    def _leave(self, batch: _Batch, *, together: bool) -> None:
        if together and self._gate.is_awaited and batch.may_grow:
            self._open = batch
        else:
            batch.commit()

    def _undo(self, batch: _Batch, error: BaseException) -> None:
        """Takes this write out of the transaction. An error that SQLite undid all of it for is told to all."""
        if not batch.writes or not batch.driver.in_transaction:
            batch.fail(error)
            return
        try:
            batch.driver.execute("ROLLBACK TO one_write")
            batch.driver.execute("RELEASE one_write")
        except Exception as worse:  # noqa: BLE001 - told to each writer
            batch.fail(worse)
        else:
            self._leave(batch, together=True)

    def _commit_open(self) -> None:
        if self._open is not None:
            batch, self._open = self._open, None
            batch.commit()
