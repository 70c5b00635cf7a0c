"""A copy of an SQLite database of one moment, while others read and write it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from storage.engine import Database
from storage.errors import StorageError


def backup_sqlite(db: Database, target: Path) -> None:
    """Copies the database into a new file, which is whole and on the disk when it is there. Nobody waits for it.

    Raises StorageError for Postgres, which has programs for this; FileExistsError where the file is there.
    """
    if not db.is_sqlite:
        raise StorageError(
            "this installation's database is Postgres", hint="back it up with pg_dump: see docs/backup.md"
        )
    if target.exists():
        raise FileExistsError(17, "is there already", str(target))
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    source = f"file:{Path(str(db.url.database)).absolute()}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(source, uri=True, timeout=15.0)) as live,
            closing(sqlite3.connect(partial)) as copy,
        ):
            live.backup(copy)  # in one read transaction: in WAL mode it keeps nobody from writing
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
    except sqlite3.Error as error:
        partial.unlink(missing_ok=True)
        raise StorageError(f"the database cannot be copied: {error}") from error
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.rename(target)
