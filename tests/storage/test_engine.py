"""The engine: real write locks, reads that wait for nobody, clocks, and errors that say what to do."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from storage import engine
from storage.engine import Database, wall_clock
from storage.errors import DatabaseUnavailable, DiskFull, StorageError
from storage.jobs import job_tx
from storage.migrate import upgrade
from storage.models import jobs
from storage.sqlite_writer import FifoGate
from tests import factories
from tests.servers.postgres import PostgresServer
from tests.servers.session import ServerSession
from tests.storage.children import ROOT, run_children
from tests.waiting import wait_until

ROUNDS = 25


def _sqlite(path: Path) -> Database:
    return Database(f"sqlite:///{path}")


# --- the gate ---


def test_the_gate_serves_in_the_order_of_arrival() -> None:
    gate = FifoGate()
    served: list[int] = []

    def enter(number: int) -> None:
        with gate:
            served.append(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(20)]
    with gate:
        for arrived, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda arrived=arrived: len(gate._waiters) == arrived, reason="it waits")  # type: ignore[misc]
        assert served == []
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_an_error_inside_opens_the_gate() -> None:
    gate = FifoGate()
    with pytest.raises(ZeroDivisionError), gate:
        raise ZeroDivisionError
    with gate:
        pass


def test_one_holder_at_a_time() -> None:
    gate = FifoGate()
    inside: list[int] = []
    most = []

    def enter() -> None:
        for _ in range(200):
            with gate:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 1600
    assert max(most) == 1


# --- transactions ---


def test_a_write_holds_the_write_lock_before_its_first_statement(tmp_path: Path) -> None:
    """A deferred BEGIN upgrades later, and then loses updates or fails at once, whatever the busy timeout."""
    db = _sqlite(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None)) as other:
        with db.write(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        with db.lone_write(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        with db.read():
            other.execute("BEGIN IMMEDIATE")  # a read holds nobody up
            other.execute("ROLLBACK")
    db.close()


def test_processes_lose_no_update_and_meet_no_lock_error(db: Database) -> None:
    """Eight real processes read, then update, two counters of one SQLite file: one of a job behind its lock, and
    one whose first statement is a SELECT, which only BEGIN IMMEDIATE makes right. Postgres: three, the job's alone.
    """
    job_id = factories.make_job(db)
    processes = 8 if db.is_sqlite else 3
    with db.write() as conn:
        conn.execute(sa.text("CREATE TABLE counter (value INTEGER)"))
        conn.execute(sa.text("INSERT INTO counter VALUES (0)"))
    body = """
import sqlalchemy as sa
from storage.jobs import job_tx
for _ in range(args["rounds"]):
    with job_tx(db, args["job"]) as job:
        job.update({"steps": job.row["steps"] + 1})
    with db.write() as conn:
        if db.is_sqlite:
            value = conn.execute(sa.text("SELECT value FROM counter")).scalar_one()
            conn.execute(sa.text("UPDATE counter SET value = :value"), {"value": value + 1})
print(json.dumps("done"))
"""
    given = {"url": db.url.render_as_string(hide_password=False), "job": job_id, "rounds": ROUNDS}
    assert run_children(body, [given] * processes) == ["done"] * processes
    assert factories.job_now(db, job_id)["steps"] == processes * ROUNDS
    if db.is_sqlite:
        with db.read() as conn:
            assert conn.execute(sa.text("SELECT value FROM counter")).scalar_one() == processes * ROUNDS


def test_a_read_waits_for_no_writer_and_sees_only_what_is_committed(db: Database) -> None:
    job_id = factories.make_job(db, title="before")
    with db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(title="after"))
        assert factories.job_now(db, job_id)["title"] == "before"
    assert factories.job_now(db, job_id)["title"] == "after"


def test_an_error_rolls_the_whole_write_back(db: Database) -> None:
    job_id = factories.make_job(db, title="before")
    for write in (db.write, db.lone_write):

        def fail(write: Callable[[], AbstractContextManager[sa.Connection]] = write) -> None:
            with write() as conn:
                conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(title="after"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert factories.job_now(db, job_id)["title"] == "before"


def test_the_lone_connection_waits_for_no_busy_pool(db: Database) -> None:
    """All connections of the pool are taken by readers: a heartbeat must get through all the same."""
    readers = engine.SQLITE_POOL if db.is_sqlite else engine.POSTGRES_POOL
    taken = [db.engine.connect() for _ in range(readers)]
    try:
        with db.lone_write() as conn:
            assert conn.execute(sa.select(sa.literal(1))).scalar_one() == 1
    finally:
        for connection in taken:
            connection.close()


def test_a_closed_database_may_be_used_again(db: Database) -> None:
    job_id = factories.make_job(db)
    with db.lone_write():
        pass
    db.close()
    assert factories.job_now(db, job_id)["id"] == job_id


def test_sqlite_commits_survive_a_power_cut_and_check_foreign_keys(tmp_path: Path) -> None:
    db = _sqlite(tmp_path / "a.db")
    for connect in (db.read, db.write, db.lone_write):
        with connect() as conn:
            assert conn.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
            assert conn.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
            assert conn.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
    db.close()


# --- the clock ---


def test_the_wall_clock_is_epoch_seconds_now(db: Database) -> None:
    before = time.time()
    with db.read() as conn:
        found = conn.execute(sa.select(wall_clock())).scalar_one()
    assert isinstance(found, float)
    assert before - 1 <= found <= time.time() + 1


def test_the_wall_clock_goes_on_inside_a_transaction(db: Database) -> None:
    """Postgres' now() stands still at the transaction's start: after a lock wait it would be long past."""
    with db.read() as conn:
        first = conn.execute(sa.select(wall_clock())).scalar_one()
        wait_until(
            lambda: conn.execute(sa.select(wall_clock())).scalar_one() > first, reason="the clock goes on"
        )


def test_sqlite_takes_the_clock_it_is_given(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path}/a.db", clock=lambda: 1234.5)
    for connect in (db.read, db.write, db.lone_write):
        with connect() as conn:
            assert conn.execute(sa.select(wall_clock())).scalar_one() == 1234.5
    db.close()


# --- errors ---


def _unavailable(db: Database) -> DatabaseUnavailable:
    with pytest.raises(DatabaseUnavailable) as caught, db.read() as conn:
        conn.execute(sa.text("SELECT 1"))
    db.close()
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "url", ["postgresql://u:hunter2@127.0.0.1:{}/x", "postgresql://127.0.0.1:{}/x?user=u&password=hunter2"]
)
def test_a_refused_port_is_an_outage_and_shows_no_password(free_port: int, url: str) -> None:
    error = _unavailable(Database(url.format(free_port)))
    assert str(free_port) in str(error)
    assert "hunter2" not in f"{error} {error.hint}"


def test_a_wrong_password_is_said_and_not_shown(private_postgres: PostgresServer) -> None:
    private_postgres.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
    hba = private_postgres.data / "pg_hba.conf"
    hba.write_text("host all guest 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n")
    private_postgres.execute("SELECT pg_reload_conf()")
    place = f"127.0.0.1:{private_postgres.port}/postgres"
    right = Database(f"postgresql://guest:right@{place}")
    with right.read() as conn:
        assert conn.execute(sa.text("SELECT 1")).scalar_one() == 1
    right.close()
    error = _unavailable(Database(f"postgresql://guest:hunter2@{place}"))
    assert "password authentication failed" in str(error)
    assert "hunter2" not in f"{error} {error.hint}"


def test_a_missing_postgres_database_is_said(postgres_server: PostgresServer) -> None:
    error = _unavailable(Database(postgres_server.url("nowhere")))
    assert "nowhere" in str(error)
    assert "does not exist" in str(error)


def test_connecting_to_a_frozen_postgres_ends(
    private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port takes connections and nothing answers: only a limit of our own ends that."""
    monkeypatch.setattr(engine, "CONNECT_TIMEOUT_SECONDS", 2)
    private_postgres.freeze()
    try:
        _unavailable(Database(private_postgres.url()))
    finally:
        private_postgres.thaw()
    db = Database(private_postgres.url())
    with db.read() as conn:
        assert conn.execute(sa.text("SELECT 1")).scalar_one() == 1
    db.close()


def test_a_killed_postgres_is_an_outage_and_is_found_again(private_postgres: PostgresServer) -> None:
    db = Database(private_postgres.url())
    upgrade(db)
    job_id = factories.make_job(db)
    for write in (db.write, db.lone_write):

        def be_cut(write: Callable[[], AbstractContextManager[sa.Connection]] = write) -> None:
            with write() as conn:
                private_postgres.kill()
                conn.execute(sa.update(jobs).values(title="never"))

        with pytest.raises(DatabaseUnavailable):
            be_cut()
        private_postgres.start()
        assert factories.job_now(db, job_id)["title"] == "a job"
    db.close()


def test_a_dead_pooled_connection_is_replaced_unseen(private_postgres: PostgresServer) -> None:
    db = Database(private_postgres.url())
    with db.read(), db.lone_write():
        pass
    private_postgres.restart()
    for connect in (db.read, db.write, db.lone_write):
        with connect() as conn:
            assert conn.execute(sa.text("SELECT 1")).scalar_one() == 1
    db.close()


def test_a_postgres_host_that_vanished_is_noticed(postgres_server: PostgresServer) -> None:
    """Without its own keepalive a connection to a host without power waits for two hours."""
    db = Database(postgres_server.url())
    with db.read() as conn:
        driver = conn.connection.driver_connection
        assert driver is not None
        given = driver.info.get_parameters()
    db.close()
    quickest = int(given["keepalives_idle"]) + int(given["keepalives_interval"]) * int(
        given["keepalives_count"]
    )
    assert quickest <= 60
    assert 0 < int(given["tcp_user_timeout"]) <= 60_000


def test_a_full_postgres_disk_is_told_apart(postgres_server: PostgresServer) -> None:
    db = Database(postgres_server.url())
    raising = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    with pytest.raises(DiskFull, match="could not extend file") as caught, db.write() as conn:
        conn.execute(sa.text(raising))
    assert "free some space" in str(caught.value.hint)
    db.close()


_FILL = """
import json, resource, sys
import sqlalchemy as sa
from storage.engine import Database
from storage.errors import DiskFull
db = Database(sys.argv[1])
with db.write() as conn:
    conn.execute(sa.text("CREATE TABLE filling (number INTEGER PRIMARY KEY, text TEXT)"))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
committed = 0
outcome = "never full"
for number in range(1000):
    try:
        with db.write() as conn:
            conn.execute(sa.text("INSERT INTO filling VALUES (:n, :t)"), {"n": number, "t": "x" * 5000})
        committed += 1
    except DiskFull as error:
        outcome = str(error)
        break
# Still usable for reading, and writing goes on where there is room again.
with db.read() as conn:
    seen = conn.execute(sa.text("SELECT count(*) FROM filling")).scalar_one()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with db.write() as conn:
    conn.execute(sa.text("INSERT INTO filling VALUES (-1, 'after')"))
print(json.dumps([committed, seen, outcome]))
"""


def test_a_full_disk_under_sqlite_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "full.db"
    done = subprocess.run(
        [sys.executable, "-c", _FILL, f"sqlite:///{file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    committed, seen, outcome = json.loads(done.stdout)
    assert outcome.startswith(f"the disk under sqlite:///{file} is full")
    assert committed == seen > 0
    db = _sqlite(file)
    with db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
        numbers = conn.execute(sa.text("SELECT number FROM filling ORDER BY number")).scalars().all()
    db.close()
    assert numbers == [-1, *range(committed)]


def test_another_io_error_is_not_called_a_full_disk(tmp_path: Path) -> None:
    """A file cut short under the database is broken, and no free space mends it."""
    db = _sqlite(tmp_path / "a.db")
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ  # as the driver sets it
    with pytest.raises(DatabaseUnavailable, match="disk I/O error"), db.read():
        raise sa.exc.OperationalError("SELECT 1", None, broken)
    db.close()


def test_a_locked_sqlite_file_is_an_outage_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", 0.05)
    db = _sqlite(tmp_path / "a.db")
    with db.read():
        pass
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="database is locked"), db.write():
            pass
        other.execute("ROLLBACK")
    with db.write():
        pass
    db.close()


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("These are notes, and long ones. " * 200)
    error = _unavailable(_sqlite(tmp_path / "notes.txt"))
    assert "file is not a database" in str(error)
    assert (tmp_path / "notes.txt").read_text().startswith("These are notes")


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    """It was a raw FileExistsError or NotADirectoryError: a traceback instead of one line."""
    (tmp_path / "file").write_text("")
    for place in ("file/a.db", "file/deeper/a.db"):
        with pytest.raises(StorageError, match="file") as caught:
            _sqlite(tmp_path / place)
        assert caught.value.hint
        assert "\n" not in str(caught.value)


# The interpreter may lie where an ordinary user cannot read: everything is loaded before root is given up.
_UNPRIVILEGED = """
import json, os, sys
from pathlib import Path
import sqlalchemy as sa
from storage.engine import Database
from storage.errors import StorageError
warm, url = sys.argv[1:]
for _ in range(2):
    db = Database(warm)
    with db.write() as conn:
        conn.execute(sa.text("CREATE TABLE IF NOT EXISTS t (x INTEGER)"))
    db.close()
try:
    Database(warm + "/below/x.db")
except StorageError:
    pass
if os.geteuid() == 0:
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
told = []
try:
    db = Database(url)
    with db.write() as conn:
        conn.execute(sa.text("CREATE TABLE t (x INTEGER)"))
except StorageError as error:
    told = [type(error).__name__, str(error), error.hint]
print(json.dumps(told))
"""


def _make_read_only_file(folder: Path) -> Path:
    file = folder / "a.db"
    db = _sqlite(file)
    with db.write() as conn:
        conn.execute(sa.text("CREATE TABLE kept (x INTEGER)"))
    db.close()
    file.chmod(0o444)
    return file


@pytest.mark.parametrize(
    "place",
    [_make_read_only_file, lambda folder: folder / "new.db", lambda folder: folder / "deeper" / "new.db"],
    ids=["a read-only file", "a folder not writable", "a folder that cannot be made"],
)
def test_a_place_that_cannot_be_written_is_said(
    server_session: ServerSession, tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    folder = server_session.new_folder("readonly")
    file = place(folder)
    folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", _UNPRIVILEGED, f"sqlite:///{tmp_path}/warm.db", f"sqlite:///{file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    kind, message, hint = json.loads(done.stdout)
    assert kind in ("DatabaseUnavailable", "StorageError")
    assert str(folder) in message
    assert "\n" not in message
    assert hint


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "mysql://root@localhost/x", "sqlite://", "sqlite:///:memory:", "oracle+x://u:pw9@h/x"],
)
def test_other_databases_are_refused_with_a_hint(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        Database(url)
    assert "SOSTENUTO_DATABASE_URL" in str(caught.value.hint)
    assert "pw9" not in str(caught.value)


def test_a_wrong_statement_is_no_outage(db: Database) -> None:
    """It was one on SQLite: a fault of the program looked like a database to be waited for."""
    with pytest.raises(sa.exc.DBAPIError, match="nothing_there"), db.read() as conn:
        conn.execute(sa.text("SELECT nothing_there"))


def test_a_lock_held_too_long_is_an_outage(
    db: Database, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = factories.make_job(db)
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", 0.05)
    other = Database(migrated_url)

    def wait_for_it() -> None:
        with other.write() as conn:
            if not db.is_sqlite:
                conn.execute(sa.text("SET LOCAL lock_timeout = '50ms'"))
            conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(title="never"))

    with job_tx(db, job_id), pytest.raises(DatabaseUnavailable):
        wait_for_it()
    other.close()
    assert factories.job_now(db, job_id)["title"] == "a job"
