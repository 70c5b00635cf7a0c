"""Fixtures for every test: real servers, a fresh database, a data folder, real worker processes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from storage.engine import Database
from storage.migrate import upgrade
from tests.servers import session as sessions
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, redis_binary, valkey_binary
from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK
from tests.servers.workers import CommandFactory

pytest_plugins = ["tests.guards"]

BACKENDS = ["sqlite", "postgres"]

# A runner that was started in the background of a shell ignores Ctrl-C, and what it starts inherits that: then the
# tests that interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
_commands = pytest.StashKey[CommandFactory]()


@pytest.fixture(scope="session")
def server_session() -> Iterator[ServerSession]:
    """Whoever starts processes goes through it: they are dead when pytest is, however it ended."""
    session = ServerSession()
    yield session
    session.close()


@pytest.fixture(scope="session")
def postgres_server(server_session: ServerSession) -> PostgresServer:
    """The session's Postgres. Never kill, freeze or stop it: that is what `private_postgres` is for."""
    server = PostgresServer(server_session)
    server.start()
    return server


@pytest.fixture
def private_postgres(server_session: ServerSession) -> Iterator[PostgresServer]:
    """A Postgres of the test's own, to kill, freeze and restart. Takes about a second."""
    server = PostgresServer(server_session)
    server.start()
    yield server
    server.kill()


def _redis_like(session: ServerSession, binary: Path) -> Iterator[RedisServer]:
    server = RedisServer(session, binary)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def valkey_server(server_session: ServerSession) -> Iterator[RedisServer]:
    """A Valkey of the test's own, to kill, freeze, restart and flush."""
    yield from _redis_like(server_session, valkey_binary())


@pytest.fixture
def redis_server(server_session: ServerSession) -> Iterator[RedisServer]:
    """A plain Redis of the test's own, to kill, freeze, restart and flush."""
    yield from _redis_like(server_session, redis_binary())


@pytest.fixture
def rabbitmq_url() -> str:
    """The RabbitMQ that runs on this machine. Shared: use queue names of your own. Needs the marker `rabbitmq`."""
    return "amqp://guest:guest@127.0.0.1:5672//"


@pytest.fixture
def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    return sessions.free_port()


@pytest.fixture
def data_dir(server_session: ServerSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh empty data folder with a short path. What the test starts while it has one dies with the test."""
    folder = server_session.new_folder("data")
    monkeypatch.setenv(MARK, f"{server_session.mark}/{folder.name}")
    yield folder
    server_session.reap(folder.name)


@pytest.fixture(scope="session")
def _migrated_sqlite(server_session: ServerSession) -> Path:
    file = server_session.new_folder("template") / "migrated.db"
    _migrate(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_server: PostgresServer) -> str:
    name = postgres_server.create_database()
    _migrate(postgres_server.url(name))
    return name


def _migrate(url: str) -> None:
    database = Database(url)
    upgrade(database)
    database.close()


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh empty database, once on SQLite and once on Postgres."""
    yield from _fresh_database(request, migrated=False)


@pytest.fixture(params=BACKENDS)
def migrated_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh database with the newest schema, once on SQLite and once on Postgres."""
    yield from _fresh_database(request, migrated=True)


def _fresh_database(request: pytest.FixtureRequest, *, migrated: bool) -> Iterator[str]:
    if request.param == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        file = folder / "test.db"
        if migrated:
            shutil.copyfile(request.getfixturevalue("_migrated_sqlite"), file)
        yield f"sqlite:///{file}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(request.getfixturevalue("_migrated_postgres") if migrated else "template1")
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def worker_process(
    request: pytest.FixtureRequest, server_session: ServerSession, data_dir: Path
) -> Iterator[CommandFactory]:
    """Starts real `sostenuto worker` processes over `data_dir`; see CommandFactory. All are dead at the end."""
    env = {**os.environ, "SOSTENUTO_DATA_DIR": str(data_dir)}
    factory = CommandFactory(server_session, data_dir.name, env)
    request.node.stash[_commands] = factory
    yield factory
    factory.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of what its worker processes printed."""
    report = yield
    if report.failed and _commands in item.stash:
        for number, command in enumerate(item.stash[_commands].started, 1):
            if not command.log_path.exists():  # the session's folder is gone when its last teardown fails
                continue
            report.sections.append((f"output of command {number} (pid {command.pid})", command.log()[-8000:]))
    return report
