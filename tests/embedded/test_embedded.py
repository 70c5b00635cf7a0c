"""The embedded broker with real servers and real programs that start, share, kill and replace them."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis
from kombu import Connection

from jobs import embedded_server
from jobs.embedded import BrokerKeeper, embedded_broker_url, ensure_broker, stop_broker
from jobs.embedded_server import EmbeddedBrokerError
from tests.servers.session import ServerSession
from tests.waiting import wait_until

# Ensures the broker, says how that went, and stops its use when its standard input ends.
USER = """
import sys
import tempfile
from functools import partial
from pathlib import Path
from jobs.embedded import ensure_broker, stop_broker
sys.stdin.readline()
handle = ensure_broker(Path(sys.argv[1]))
print(handle.started, handle.pid, flush=True)
sys.stdin.readline()
print(stop_broker(handle), flush=True)
"""


class User:
    """Another program that uses the broker of the same data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(data_dir)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def go(self) -> None:
        """Let it take its next step; does not wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> list[str]:
        """The words it says after that step."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


@pytest.fixture
def new_user(data_dir: Path) -> Iterator[Callable[[], User]]:
    users: list[User] = []

    def start() -> User:
        users.append(User(data_dir))
        return users[-1]

    yield start
    for user in users:
        user.process.kill()
        user.process.communicate()


def _ping(url: str) -> bool:
    """As Celery reaches it: by kombu, from the URL alone."""
    with Connection(url) as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        client: redis.Redis = connection.default_channel.client
        return bool(client.ping())


def _running(pid: int) -> bool:
    return bool(embedded_server._command_line(pid))


def _gone(pid: int | None) -> bool:
    assert pid is not None
    return not _running(pid)


def test_started_once_then_found_and_stopped_by_the_last_user(data_dir: Path) -> None:
    first = ensure_broker(data_dir)
    second = ensure_broker(data_dir)
    assert (first.started, second.started) == (True, False)
    assert first.pid == second.pid
    assert first.url == second.url == embedded_broker_url(data_dir)
    assert _ping(first.url)
    assert stop_broker(first) is False
    assert _ping(second.url)
    assert stop_broker(second) is True
    assert _gone(first.pid)
    assert stop_broker(second) is False


def test_it_is_private_and_writes_no_messages_to_disk(data_dir: Path) -> None:
    handle = ensure_broker(data_dir)
    socket = data_dir / "run" / "valkey.sock"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE((data_dir / "run").stat().st_mode) == 0o700
    client = redis.Redis(unix_socket_path=str(socket))
    settings = client.config_get("port", "save", "appendonly", "maxmemory-policy")
    assert settings == {"port": "0", "save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
    client.close()
    stop_broker(handle)


def test_the_servers_environment_holds_no_secrets(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    handle = ensure_broker(data_dir)
    assert b"sk-canary" not in Path(f"/proc/{handle.pid}/environ").read_bytes()
    stop_broker(handle)


def test_five_programs_that_start_at_once_get_one_server(new_user: Callable[[], User]) -> None:
    users = [new_user() for _ in range(5)]
    for user in users:
        user.go()
    answers = [user.answer() for user in users]
    assert sorted(started for started, _ in answers) == ["False"] * 4 + ["True"]
    assert len({pid for _, pid in answers}) == 1
    stopped = []
    for user in users:
        user.go()
        stopped.append(user.answer())
    assert stopped == [["False"]] * 4 + [["True"]]


def test_a_killed_programs_server_is_used_by_the_next(data_dir: Path, new_user: Callable[[], User]) -> None:
    user = new_user()
    user.go()
    _, pid = user.answer()
    user.process.kill()
    user.process.wait()
    handle = ensure_broker(data_dir)
    assert (handle.started, handle.pid) == (False, int(pid))
    assert stop_broker(handle) is True
    assert _gone(handle.pid)


def test_ctrl_c_does_not_reach_the_server(data_dir: Path) -> None:
    handle = ensure_broker(data_dir)
    assert handle.pid is not None
    assert os.getsid(handle.pid) == handle.pid
    stop_broker(handle)


def test_a_dead_servers_socket_and_pid_file_are_replaced(data_dir: Path) -> None:
    handle = ensure_broker(data_dir)
    assert handle.pid is not None
    os.kill(handle.pid, signal.SIGKILL)
    wait_until(lambda: _gone(handle.pid), reason="the killed server is gone")
    assert (data_dir / "run" / "valkey.sock").exists()
    again = ensure_broker(data_dir)
    assert again.started
    assert again.pid != handle.pid
    assert _ping(again.url)
    handle.release()
    assert stop_broker(again) is True


def test_a_pid_file_that_names_another_process_harms_nobody(
    data_dir: Path, server_session: ServerSession
) -> None:
    """After a reboot the number in the pid file may be anybody's: it must neither be killed nor believed."""
    bystander = server_session.spawn(["sleep", "600"], data_dir / "sleep.log")
    (data_dir / "run").mkdir()
    (data_dir / "run" / "valkey.pid").write_text(str(bystander.pid))
    handle = ensure_broker(data_dir)
    assert handle.started
    assert stop_broker(handle) is True
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("content", ["", "not a number", "-1", "0"])
def test_a_damaged_pid_file_is_ignored(data_dir: Path, content: str) -> None:
    (data_dir / "run").mkdir()
    (data_dir / "run" / "valkey.pid").write_text(content)
    handle = ensure_broker(data_dir)
    assert handle.started
    assert stop_broker(handle) is True


def test_a_frozen_server_is_ended_and_replaced(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.embedded.ANSWER_TIMEOUT", 0.2)
    frozen = ensure_broker(data_dir)
    assert frozen.pid is not None
    os.kill(frozen.pid, signal.SIGSTOP)
    fresh = ensure_broker(data_dir)
    assert fresh.started
    assert fresh.pid != frozen.pid
    assert _gone(frozen.pid)
    frozen.release()
    assert stop_broker(fresh) is True


def test_the_keeper_starts_a_killed_server_again(data_dir: Path) -> None:
    keeper = BrokerKeeper(data_dir, interval=0.05)
    url = keeper.start()
    with Connection(url) as connection:
        first = connection.default_channel.client.info("server")["process_id"]
    os.kill(first, signal.SIGKILL)
    second = wait_until(lambda: _other_pid(data_dir, first), reason="another server answers")
    assert _ping(url)
    keeper.stop()
    assert _gone(second)


def test_two_keepers_restart_one_server_and_the_last_one_stops_it(data_dir: Path) -> None:
    keepers = [BrokerKeeper(data_dir, interval=0.02) for _ in range(2)]
    for keeper in keepers:
        keeper.start()
    socket = data_dir / "run" / "valkey.sock"
    pid = embedded_server.answering_pid(socket, 5)
    for _ in range(3):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        pid = wait_until(partial(_other_pid, data_dir, pid), reason="another server answers")
    keepers[0].stop()
    assert _ping(embedded_broker_url(data_dir))
    keepers[1].stop()
    assert _gone(pid)


def _other_pid(data_dir: Path, dead: int) -> int | None:
    pid = embedded_server.answering_pid(data_dir / "run" / "valkey.sock", 5)
    return pid if pid != dead else None


def test_a_keeper_that_was_never_started_can_be_stopped(data_dir: Path) -> None:
    BrokerKeeper(data_dir).stop()
    assert not (data_dir / "run").exists()


@pytest.fixture
def long_data_dir(data_dir: Path, server_session: ServerSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Too long for a socket. The short folder is made where the session cleans up."""
    monkeypatch.setattr(tempfile, "tempdir", str(server_session.folder))
    folder = data_dir / ("long" * 30)
    folder.mkdir()
    return folder


def test_a_long_path_gets_a_short_private_folder_that_everybody_finds(long_data_dir: Path) -> None:
    url = embedded_broker_url(long_data_dir)
    handle = ensure_broker(long_data_dir)
    assert handle.url == url == embedded_broker_url(long_data_dir)
    folder = Path((long_data_dir / "run" / "socket-folder").read_text())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(os.fsencode(folder / "valkey.sock")) <= 100
    assert _ping(url)
    assert ensure_broker(long_data_dir).started is False
    assert stop_broker(handle) is True


def test_a_swept_short_folder_comes_back_at_the_same_place(long_data_dir: Path) -> None:
    url = embedded_broker_url(long_data_dir)
    Path((long_data_dir / "run" / "socket-folder").read_text()).rmdir()
    handle = ensure_broker(long_data_dir)
    assert handle.url == url
    assert _ping(url)
    stop_broker(handle)


@pytest.mark.parametrize("squatter", ["link", "open folder"])
def test_a_short_folder_that_is_not_ours_any_more_is_not_used(
    long_data_dir: Path, tmp_path: Path, squatter: str
) -> None:
    embedded_broker_url(long_data_dir)
    folder = Path((long_data_dir / "run" / "socket-folder").read_text())
    folder.rmdir()
    if squatter == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    url = embedded_broker_url(long_data_dir)
    assert str(folder) not in url


@pytest.mark.parametrize(
    "name", ["with space", "question?mark", "hash#", "percent%41", "あ", 'it\'s "quoted"']
)
def test_any_folder_name_works(data_dir: Path, name: str) -> None:
    folder = data_dir / name
    folder.mkdir()
    handle = ensure_broker(folder)
    assert _ping(handle.url)
    assert stop_broker(handle) is True


def test_a_server_that_cannot_start_says_why_and_what_to_do(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = data_dir / "valkey-server"
    broken.write_text("#!/bin/sh\necho no luck\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("jobs.embedded_server.binary", lambda: broken)
    with pytest.raises(EmbeddedBrokerError, match="exit code 3") as caught:
        ensure_broker(data_dir)
    assert caught.value.hint is not None
    assert "SOSTENUTO_BROKER_URL" in caught.value.hint
    assert "no luck" in (data_dir / "logs" / "valkey.log").read_text()


def test_a_starter_that_hangs_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.embedded.LOCK_TIMEOUT", 0.05)
    embedded_broker_url(data_dir)
    with (data_dir / "run" / "broker.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedBrokerError, match="held"):
            ensure_broker(data_dir)


def test_a_data_folder_that_cannot_be_written_is_named(data_dir: Path) -> None:
    (data_dir / "run").write_text("a file where a folder should be")
    with pytest.raises(EmbeddedBrokerError, match="cannot be used"):
        ensure_broker(data_dir)


def test_the_keeper_survives_a_time_without_a_server(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = BrokerKeeper(data_dir, interval=0.02)
    keeper.start()
    real = embedded_server.start
    attempts = itertools.count()

    def failing(*arguments: Path) -> subprocess.Popen[bytes]:
        if next(attempts) < 2:
            raise EmbeddedBrokerError("no memory")
        return real(*arguments)

    monkeypatch.setattr("jobs.embedded_server.start", failing)
    pid = embedded_server.answering_pid(data_dir / "run" / "valkey.sock", 5)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _other_pid(data_dir, pid), reason="the third attempt started a server")
    keeper.stop()
    assert caplog.text.count("does not start: no memory") == 2
