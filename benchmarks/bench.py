"""What all measurements of one run share: its sizes, its servers, its folder; all are gone when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.processes import environment
from jobs.embedded import BrokerHandle, ensure_broker, stop_broker
from storage.engine import Database
from storage.migrate import upgrade
from tests.servers.postgres import PostgresServer
from tests.servers.session import ServerSession
from tests.servers.workers import CommandFactory

ROOT = Path(__file__).parents[1]
BACKENDS = ("sqlite", "postgres")
NAMES = {"sqlite": "SQLite", "postgres": "Postgres"}


class NotInstalled(Exception):
    """What is to be measured is not here; its text says how to get it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: enough to trust, or just enough to see that everything works."""

    rounds: int  # of the contests; the contestants take turns in each
    jobs: int  # of ten steps, in a round
    long_steps: int  # of the long job
    floor_samples: int
    steps: int  # of a slice, at each length of a transcript
    transcripts: tuple[int, ...]  # messages before the measured steps
    waiting_jobs: int
    waiting_steps: int
    stream_seconds: float
    submits: int  # whose first model call is waited for
    lease_seconds: float
    kills: int
    compactions: int
    listed_jobs: int
    listed_events: int
    processes: int = 2  # of workers of each system
    few: bool = False  # of the systems and databases: what shows that everything works


FULL = Sizes(
    rounds=5, jobs=40, long_steps=200, floor_samples=300, steps=50, transcripts=(100, 1_000, 10_000, 100_000),
    waiting_jobs=200, waiting_steps=5, stream_seconds=1.0, submits=40, lease_seconds=15, kills=2, compactions=10,
    listed_jobs=100_000, listed_events=10_000,
)  # fmt: skip
QUICK = Sizes(
    rounds=1, jobs=2, long_steps=12, floor_samples=10, steps=5, transcripts=(4, 10),
    waiting_jobs=4, waiting_steps=2, stream_seconds=0.1, submits=2, lease_seconds=15, kills=1, compactions=1,
    listed_jobs=20, listed_events=20, processes=1, few=True,
)  # fmt: skip


class Bench:
    """Servers start when they are first asked for."""

    def __init__(self, session: ServerSession, sizes: Sizes, peers: Path) -> None:
        self.session = session
        self.sizes = sizes
        self.peers = peers  # the environment of the other systems, which may not be there
        self.folder = session.new_folder("bench")
        self._numbers = 0
        self._brokers: list[BrokerHandle] = []

    @cached_property
    def commands(self) -> CommandFactory:
        return CommandFactory(self.session, self.folder.name, environment())

    @cached_property
    def postgres(self) -> PostgresServer:
        server = PostgresServer(self.session)
        server.start()
        return server

    def new_broker(self) -> str:
        """The URL of a broker such as every data folder has its own: Valkey on a Unix socket."""
        handle = ensure_broker(self.new_folder("broker"))
        self._brokers.append(handle)
        return handle.url

    def new_folder(self, name: str) -> Path:
        """An empty folder with a short path."""
        self._numbers += 1
        folder = self.folder / f"{name}{self._numbers}"
        folder.mkdir()
        return folder

    def new_database(self, backend: str, *, migrated: bool = False) -> str:
        """The URL of an empty database, or of one with this project's tables."""
        if backend == "sqlite":
            url = f"sqlite:///{self.new_folder('database')}/bench.db"
        else:
            url = self.postgres.url(self.postgres.create_database())
        if migrated:
            database = Database(url)
            upgrade(database)
            database.close()
        return url

    @property
    def peers_python(self) -> Path | None:
        """The interpreter of the other systems; None where they are not installed."""
        python = self.peers / "bin" / "python"
        return python if python.exists() else None

    def close(self) -> None:
        if "commands" in self.__dict__:
            self.commands.close()
        for broker in self._brokers:
            stop_broker(broker)
        self.session.reap(self.folder.name)


@contextmanager
def open_bench(sizes: Sizes, peers: Path) -> Iterator[Bench]:
    """A session of servers and processes that end with it, however it ends."""
    session = ServerSession()
    try:
        bench = Bench(session, sizes, peers)
        try:
            yield bench
        finally:
            bench.close()
    finally:
        session.close()
