"""Where a storm takes place: a database, a broker, a model endpoint and worker processes, all real, all its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from jobs.installation import Installation
from jobs.settings import HookSettings, Settings
from storage.crashpoints import VARIABLE
from storage.engine import Database
from storage.migrate import upgrade
from tests.servers.postgres import PostgresServer
from tests.servers.session import ServerSession
from tests.servers.workers import CommandFactory, CommandProcess
from tests.storm import ledger_tools
from tests.storm.brokers import open_broker
from tests.storm.recipes import PIECE
from tests.storm.workers import Slot
from tests.strict_endpoint import StrictEndpoint
from tests.strict_endpoint.minds import Mind

DATABASES = ("sqlite", "postgres")
LEASE = 4.0
HOOK = "storm"
# Short leases and slices, so that every kind of end happens often; a window that long jobs fill.
USUAL = {
    "SOSTENUTO_LEASE_SECONDS": f"{LEASE:g}",
    "SOSTENUTO_SLICE_STEPS": "6",
    "SOSTENUTO_SWEEP_SECONDS": "0.5",
    "SOSTENUTO_GRACE_SECONDS": "2",
    "SOSTENUTO_MAX_ATTEMPTS": "100",  # the storm kills more often than a poison job would
    "SOSTENUTO_MODEL": "strict",
    "SOSTENUTO_MODEL_IDLE_TIMEOUT": "4",
    "SOSTENUTO_CONTEXT_WINDOW": "8000",
    "SOSTENUTO_CONTEXT_COMPRESSION_KEEP_RECENT": "4",
    "SOSTENUTO_EXCHANGES_KEEP_DAYS": "0",
}


ENTRY_POINTS = (
    f"[sostenuto.tools]\nledger = storm_ledger:TOOLS\n[sostenuto.hooks]\n{HOOK} = storm_ledger:tell\n"
)


class Site:
    """Everything that is struck, and where all of it writes. `close` ends it; its session removes the folder."""

    def __init__(
        self, session: ServerSession, database: str, broker: str, mind: Mind, settings: Mapping[str, str]
    ) -> None:
        self.folder = session.new_folder("storm")
        self.data = self.folder / "data"
        self.ledger = self.folder / "ledger.txt"
        self.postgres = PostgresServer(session) if database == "postgres" else None
        self.slots: list[Slot] = []
        self._settings = dict(settings)
        self._exits = ExitStack()
        self.data.mkdir()
        self.ledger.touch()
        self.hook_ledger = self.folder / "hooks.txt"
        self.hook_ledger.touch()
        self.endpoint = self._exits.enter_context(StrictEndpoint(mind))
        self.broker = open_broker(broker, session, self.data)
        self._exits.callback(self.broker.close)
        self.installation = self._install()
        self._commands = CommandFactory(session, self.folder.name, os.environ | self._environment())
        self._exits.callback(self._commands.close)

    def open_slots(self, count: int, concurrency: int) -> None:
        """Starts so many worker processes, and keeps their places filled."""

        def launch(crash_point: str) -> CommandProcess:
            armed = {VARIABLE: crash_point} if crash_point else {}
            return self._commands("--concurrency", str(concurrency), env=armed)

        for number in range(count):
            slot = Slot(number, launch, LEASE * 1.5)
            slot.start()
            self.slots.append(slot)
            self._exits.callback(slot.end)

    def close(self) -> None:
        """Ends everything that was started here."""
        self._exits.close()

    def _install(self) -> Installation:
        if self.postgres is not None:
            self.postgres.start()
            self._exits.callback(self.postgres.kill)
        url = self.postgres.url() if self.postgres is not None else f"sqlite:///{self.data}/storm.db"
        database = Database(url)
        upgrade(database)
        pieces = self.data / "pieces"
        pieces.mkdir()
        (pieces / "storm.yaml").write_text(PIECE)
        settings = Settings(
            database_url=url,
            data_dir=self.data,
            pieces_dir=pieces,
            broker_url=self.broker.url,
            hooks=HookSettings(completion=(HOOK,)),
        )
        installation = Installation(settings, database)
        self._exits.callback(installation.close)
        return installation

    def _environment(self) -> dict[str, str]:
        settings = self.installation.settings
        return {
            **USUAL,
            "SOSTENUTO_DATABASE_URL": settings.database_url,
            "SOSTENUTO_DATA_DIR": str(self.data),
            "SOSTENUTO_PIECES_DIR": str(settings.pieces_dir),
            "OPENAI_BASE_URL": self.endpoint.url,
            "PYTHONPATH": str(self._tool_package()),
            "SOSTENUTO_HOOKS_COMPLETION": HOOK,
            ledger_tools.LEDGER: str(self.ledger),
            ledger_tools.HOOK_LEDGER: str(self.hook_ledger),
            **({} if self.broker.url is None else {"SOSTENUTO_BROKER_URL": self.broker.url}),
            **self._settings,
        }

    def _tool_package(self) -> Path:
        """The storm's tools as an installed package: its module, and what installers write of its entry point."""
        folder = self.folder / "site"
        info = folder / "storm_ledger-1.dist-info"
        info.mkdir(parents=True)
        shutil.copy(ledger_tools.__file__, folder / "storm_ledger.py")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: storm_ledger\nVersion: 1\n")
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        return folder
