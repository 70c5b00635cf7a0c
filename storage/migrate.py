"""Schema migrations: Alembic, driven from code, one migrator at a time on either database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage.engine import Database
from storage.errors import SchemaMismatch

_ADVISORY_LOCK = 0x505E  # any constant of ours: serialises migrators on Postgres


def head() -> str:
    """The revision that this program's models need."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def current(db: Database) -> str | None:
    """The revision of the database, None when it is empty."""
    with db.read() as conn:
        return MigrationContext.configure(conn).get_current_revision()


def upgrade(db: Database, revision: str = "head") -> None:
    """Migrates up to `revision`, all or nothing. Raises SchemaMismatch when a newer program made the database."""
    with _migrating(db) as config:
        command.upgrade(config, revision)


def downgrade(db: Database, revision: str) -> None:
    """Migrates down to `revision` ("base" empties the database, jobs included)."""
    with _migrating(db) as config:
        command.downgrade(config, revision)


def check(db: Database) -> None:
    """Raises SchemaMismatch unless the database has exactly this program's schema."""
    found = current(db)
    if found == head():
        return
    if found is not None and found not in _known():
        raise _newer(found)
    what = "has no tables yet" if found is None else f"is at revision {found}, this program needs {head()}"
    raise SchemaMismatch(f"the database {what}", hint="run: sostenuto db upgrade")


def _newer(found: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the data was written by a newer version of Sostenuto (revision {found})",
        hint="upgrade this installation; nothing was changed",
    )


def _known() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@contextmanager
def _migrating(db: Database) -> Iterator[Config]:
    config = _config()
    with db.write() as conn:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        found = MigrationContext.configure(conn).get_current_revision()
        if found is not None and found not in _known():
            raise _newer(found)
        config.attributes["connection"] = conn
        yield config
