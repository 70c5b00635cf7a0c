"""An opened installation: its settings, its database and its sender of wake-ups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from jobs.embedded import embedded_broker_url
from jobs.pieces import Library
from jobs.settings import Settings
from jobs.wakeups import WakeUpPublisher
from storage import migrate
from storage.engine import Database
from storage.masking import register_secrets


@dataclass
class Installation:
    """What every door (CLI, API, worker) works on. Not to be carried across a fork."""

    settings: Settings
    db: Database

    def __post_init__(self) -> None:
        register_secrets(self.settings.secrets())
        self.db.final_summaries = self.settings.context.final_summary.enabled
        if self.settings.hooks.completion or self.settings.hooks.pause:
            from jobs.hooks import state_hooks

            self.db.hooks = state_hooks(self.settings)

    @cached_property
    def wakeups(self) -> WakeUpPublisher:
        return WakeUpPublisher(broker_url(self.settings))

    @cached_property
    def library(self) -> Library:
        return Library(self.settings.pieces_dir)

    def close(self) -> None:
        """Closes connections; waits up to a second for wake-ups in hand."""
        if "wakeups" in self.__dict__:
            self.wakeups.close()
        self.db.close()


def broker_url(settings: Settings) -> str:
    """The configured broker, else the private one of the data folder (which may not be running now)."""
    return settings.broker_url or embedded_broker_url(settings.data_dir)


@contextmanager
def open_installation(settings: Settings) -> Iterator[Installation]:
    """Opens the database, which must have this program's schema.

    The default SQLite file in the data folder is made and migrated by itself; any other database raises
    SchemaMismatch until `sostenuto db upgrade` was run. Raises StorageError where it cannot be opened.
    """
    db = Database(settings.database_url)
    installation = Installation(settings, db)
    with contextlib.closing(installation):
        if settings.database_url == f"sqlite:///{settings.data_dir}/sostenuto.db":
            _migrate_own_file(db)
        else:
            migrate.check(db)
        yield installation


def _migrate_own_file(db: Database) -> None:
    found = migrate.current(db)
    if migrate.is_newer(found):
        migrate.check(db)
    elif found != migrate.head():
        migrate.upgrade(db)
