"""Schema migrations: Alembic, driven from code, one migrator at a time on either database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.errors import SchemaMismatch
from storage.models import schema_floor

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION_TABLE = sa.table("alembic_version", sa.column("version_num", sa.Text))
_ADVISORY_LOCK = 0x505E  # any constant of ours: serialises migrators on Postgres


def revisions() -> list[str]:
    """Every revision this program knows, oldest first: a migration's file begins with its number.

    Read from the file names, because every command asks, and importing Alembic takes as long as all the rest.
    """
    return sorted(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def head() -> str:
    """The revision that this program's models need."""
    return revisions()[-1]


def current(db: Database) -> str | None:
    """The revision of the database, None when it is empty."""
    with db.read() as conn:
        return _current(conn)


def _current(conn: Connection) -> str | None:
    if not sa.inspect(conn).has_table(_VERSION_TABLE.name):
        return None
    return conn.execute(sa.select(_VERSION_TABLE.c.version_num)).scalar_one_or_none()


def upgrade(db: Database, revision: str = "head") -> None:
    """Migrates up to `revision`, all or nothing. Raises SchemaMismatch when a newer program made the database."""
    from alembic import command

    with _migrating(db) as config:
        command.upgrade(config, revision)


def downgrade(db: Database, revision: str) -> None:
    """Migrates down to `revision` ("base" empties the database, jobs included)."""
    from alembic import command

    with _migrating(db) as config:
        command.downgrade(config, revision)


def is_newer(found: str | None) -> bool:
    """Whether a newer program than this one migrated the database."""
    return found is not None and found not in revisions()


def check(db: Database) -> None:
    """Raises SchemaMismatch unless this program may work on the database.

    It may on its own schema, and on a newer one that lets it: migrations only add, until the versions that do not know
    what was added are gone (docs/adr/0004-expand-then-contract.md).
    """
    found = current(db)
    if found == head() or (is_newer(found) and head() >= oldest_program(db)):
        return
    if found is not None and is_newer(found):
        raise _newer(found)
    what = "has no tables yet" if found is None else f"is at revision {found}, this program needs {head()}"
    raise SchemaMismatch(f"the database {what}", hint="run: sostenuto db upgrade")


def oldest_program(db: Database) -> str:
    """The oldest revision whose program may work on this database."""
    with db.read() as conn:
        if not sa.inspect(conn).has_table(schema_floor.name):
            return current(db) or ""
        return str(conn.execute(sa.select(schema_floor.c.oldest_program)).scalar_one())


def _newer(found: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the data was written by a newer version of Sostenuto (revision {found})",
        hint="upgrade this installation; nothing was changed",
    )


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


@contextmanager
def _migrating(db: Database) -> Iterator[Config]:
    config = _config()
    with db.schema_write() as conn:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        found = _current(conn)
        if found is not None and is_newer(found):
            raise _newer(found)
        config.attributes["connection"] = conn
        yield config
