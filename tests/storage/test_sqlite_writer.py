"""Writes of one process that share a commit: all that returned are there, and one that failed takes nobody along."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage import sqlite_writer
from storage.engine import Database
from storage.errors import StorageError
from storage.sqlite_writer import FifoGate
from tests.waiting import wait_until

Body = Callable[[Connection], object]
COUNT = 6


class Refused(Exception):
    """What a block raises by itself."""


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(sqlite_writer, "LONGEST_TOGETHER", 60.0)
    database = Database(f"sqlite:///{tmp_path}/writes.db")
    with database.write() as conn:
        conn.exec_driver_sql("CREATE TABLE parents (number INTEGER PRIMARY KEY)")
        conn.exec_driver_sql(
            "CREATE TABLE rows (number INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents)"
        )
    yield database
    database.close()


@pytest.fixture
def commits(db: Database) -> list[str]:
    """One entry for each commit from now on."""
    seen: list[str] = []
    sa.event.listen(db.engine, "commit", lambda _conn: seen.append("commit"))
    return seen


def add(*numbers: int, twice: str = "") -> Body:
    """`twice`: what becomes of the transaction where the row is there already; "" as usual: of the statement alone."""

    def body(conn: Connection) -> None:
        for number in numbers:
            conn.exec_driver_sql(f"INSERT {twice} INTO rows VALUES ({number}, NULL)")

    return body


def kept(db: Database) -> list[int]:
    with db.read() as conn:
        return list(conn.exec_driver_sql("SELECT number FROM rows ORDER BY number").scalars())


def write_at_once(
    db: Database,
    bodies: list[Body],
    *,
    alone: frozenset[int] = frozenset(),
    returned: threading.Event | None = None,
) -> list[Exception | None]:
    """Each body in a thread of its own, in this order, the others waiting while the first is at it: what each raised."""
    raised: list[Exception | None] = [None] * len(bodies)
    everybody_waits = threading.Event()

    def write(place: int, body: Body) -> None:
        try:
            block: AbstractContextManager[Connection] = db.write(together=place not in alone)
            with block as conn:
                if place == 0:
                    assert everybody_waits.wait(30)
                body(conn)
            if returned is not None:
                returned.set()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            raised[place] = error

    threads = [threading.Thread(target=write, args=(place, body)) for place, body in enumerate(bodies)]
    for place, thread in enumerate(threads):
        thread.start()
        if place == 0:
            wait_until(lambda: db._writer._gate._held, reason="the first one writes")
        else:
            wait_until(lambda place=place: len(db._writer._gate._waiters) == place, reason="it waits")  # type: ignore[misc]
    everybody_waits.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return raised


def test_those_that_wait_share_one_commit(db: Database, commits: list[str]) -> None:
    assert write_at_once(db, [add(number) for number in range(COUNT)]) == [None] * COUNT
    assert kept(db) == list(range(COUNT))
    assert len(commits) - 1 == 1  # the read's own is the other


def test_nobody_returns_before_the_commit(db: Database) -> None:
    """What a thread does after its write may rely on it, whoever commits."""
    seen: list[list[int]] = []
    returned = threading.Event()

    def and_look(number: int) -> Body:
        def body(conn: Connection) -> None:
            add(number)(conn)
            if number == COUNT - 1:
                assert not returned.wait(0.2)  # the others have long left their blocks
                seen.append(kept(db))

        return body

    raised = write_at_once(db, [and_look(number) for number in range(COUNT)], returned=returned)
    assert raised == [None] * COUNT
    assert seen == [[]]
    assert kept(db) == list(range(COUNT))


def test_no_more_than_so_many_share_one(
    db: Database, commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "MOST_TOGETHER", 2)
    write_at_once(db, [add(number) for number in range(COUNT)])
    assert len(commits) == COUNT / 2
    assert kept(db) == list(range(COUNT))


def test_one_that_takes_long_is_committed_at_once(
    db: Database, commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "LONGEST_TOGETHER", 0.0)
    write_at_once(db, [add(number) for number in range(COUNT)])
    assert len(commits) == COUNT


@pytest.mark.parametrize("place", [0, 2, COUNT - 1])
def test_one_that_fails_takes_nobody_along(db: Database, place: int) -> None:
    def fail(conn: Connection) -> None:
        add(100)(conn)
        raise Refused

    bodies = [add(number) for number in range(COUNT)]
    bodies[place] = fail
    raised = write_at_once(db, bodies)
    assert [type(error) for error in raised] == [
        Refused if at == place else type(None) for at in range(COUNT)
    ]
    assert kept(db) == [number for number in range(COUNT) if number != place]


@pytest.mark.parametrize("place", [0, 2, COUNT - 1])
def test_a_statement_that_fails_takes_nobody_along(db: Database, place: int) -> None:
    add_all = [add(number) for number in range(COUNT)]
    add_all[place] = add(100, 100)
    raised = write_at_once(db, add_all)
    assert [error is None for error in raised] == [at != place for at in range(COUNT)]
    assert kept(db) == [number for number in range(COUNT) if number != place]


@pytest.mark.parametrize("place", [2, COUNT - 1])
def test_what_sqlite_undoes_as_a_whole_is_told_to_all_it_was_of(db: Database, place: int) -> None:
    """As with a disk that fills up: the transaction is gone, and with it what others had written in it."""
    bodies = [add(number) for number in range(COUNT)]
    bodies[place] = add(100, 100, twice="OR ROLLBACK")
    raised = write_at_once(db, bodies)
    assert [error is None for error in raised] == [at > place for at in range(COUNT)]
    assert kept(db) == list(range(place + 1, COUNT))


def test_a_commit_that_fails_is_told_to_all_and_keeps_nothing(db: Database) -> None:
    def orphan(conn: Connection) -> None:
        conn.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
        conn.exec_driver_sql("INSERT INTO rows VALUES (100, 7)")  # refused at the commit

    bodies = [add(number) for number in range(COUNT)]
    bodies[2] = orphan
    raised = write_at_once(db, bodies)
    assert [type(error) for error in raised] == [sa.exc.IntegrityError] * COUNT
    assert kept(db) == []
    with db.write(together=True) as conn:
        add(1)(conn)
    assert kept(db) == [1]


def test_a_write_of_its_own_shares_with_nobody(db: Database, commits: list[str]) -> None:
    assert write_at_once(db, [add(number) for number in range(COUNT)], alone=frozenset({2})) == [None] * COUNT
    assert len(commits) == 3  # those before it, it, those after it
    assert kept(db) == list(range(COUNT))


def test_one_that_is_interrupted_while_it_waits_holds_up_nobody(db: Database) -> None:
    """Ctrl-C, in the main thread of a program that writes from other threads, too."""
    me = threading.get_ident()
    begun, go_on = threading.Event(), threading.Event()

    def write_first() -> None:
        with db.write(together=True) as conn:
            begun.set()
            assert go_on.wait(30)
            add(1)(conn)

    def interrupt() -> None:
        wait_until(lambda: db._writer._gate.is_awaited, reason="it waits")
        signal.pthread_kill(me, signal.SIGINT)

    threads = [threading.Thread(target=write_first), threading.Thread(target=interrupt)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    with pytest.raises(KeyboardInterrupt), db.write(together=True):
        pass
    assert not db._writer._gate.is_awaited
    go_on.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with db.write(together=True) as conn:
        add(2)(conn)
    assert kept(db) == [1, 2]


def test_an_interrupt_that_comes_with_the_gate_hands_it_on() -> None:
    gate = FifoGate()
    with gate:
        pass
    gate.__enter__()
    gate._withdraw(threading.Lock())  # not among those who wait: the gate was its own
    with gate:
        pass


def test_what_nobody_goes_on_with_is_committed_by_those_who_wait_for_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was next was interrupted just then."""
    monkeypatch.setattr(sqlite_writer, "LOOK_SECONDS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(FifoGate, "is_awaited", True)
        with db.write(together=True) as conn:
            add(1)(conn)
    assert kept(db) == [1]


def test_a_migration_waits_for_those_that_are_under_way(db: Database) -> None:
    """It has a connection of its own, and the open transaction has the file's lock."""
    began = threading.Event()
    found: list[list[int]] = []

    def migrate() -> None:
        began.set()
        with db.schema_write() as conn:
            found.append(list(conn.exec_driver_sql("SELECT number FROM rows").scalars()))

    migrating = threading.Thread(target=migrate)
    with db.write(together=True) as conn:
        add(1)(conn)
        migrating.start()
        assert began.wait(30)
        wait_until(lambda: db._writer._gate.is_awaited, reason="it waits")
    migrating.join(30)
    assert found == [[1]]


def test_closing_commits_nothing_twice_and_the_next_write_opens_anew(db: Database) -> None:
    with db.write(together=True) as conn:
        add(1)(conn)
    db.close()
    with db.write(together=True) as conn:
        add(2)(conn)
    assert kept(db) == [1, 2]
    with pytest.raises(StorageError), db.write(together=True):
        raise StorageError("given up")
    assert kept(db) == [1, 2]


def test_a_write_that_waits_while_it_is_closed_takes_a_connection_of_the_new_pool(db: Database) -> None:
    """Else its connection is nobody's: it is counted in no pool, and closed by none."""
    disposed = db.engine.dispose
    written = threading.Thread(target=lambda: add_alone(db, 1))

    def dispose_late() -> None:
        written.start()
        wait_until(lambda: db._writer._gate.is_awaited, reason="it waits")
        disposed()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(db.engine, "dispose", dispose_late)
        db.close()
    written.join(30)
    assert kept(db) == [1]
    assert db.busy_connections == 0


def add_alone(db: Database, number: int) -> None:
    with db.write(together=True) as conn:
        add(number)(conn)
