"""tasks.db: one table over all jobs of an archive, whose bytes depend on nothing but its rows.

It is made anew each time, in the order of the ids: SQLite's files are the same then, but for the version of the library
that wrote them, which is set to zero.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from storage.archive.layout import COMPLETED, FINAL_SUMMARY, METADATA, TASKS, task_of, timestamp
from storage.archive.lines import Problem, Tell
from storage.archive.reader import JobFolder
from storage.archive.rows import KEPT

COLUMNS = (
    "uuid", "status", "task_type", "task_identifier", "repository", "user", "created_at", "updated_at", "completed_at",
    "metadata", "total_messages", "total_summaries", "total_tool_calls", "final_token_count", "final_message_count",
    "error_message",
)  # fmt: skip
_TABLE = """CREATE TABLE tasks (
    uuid TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    task_type TEXT NOT NULL,
    task_identifier TEXT,
    repository TEXT,
    user TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT,
    completed_at TEXT,
    metadata TEXT,
    total_messages INTEGER DEFAULT 0,
    total_summaries INTEGER DEFAULT 0,
    total_tool_calls INTEGER DEFAULT 0,
    final_token_count INTEGER,
    final_message_count INTEGER,
    error_message TEXT
)"""
_INDEXES = ("status", "task_type", "repository", "user", "completed_at")
_INSERT = f"INSERT OR REPLACE INTO tasks VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - our own words
_VERSION_AT = 96  # of the library, in the file's header: for information only


class TasksDb:
    """The table while jobs are being written. Rows of before are kept, for the jobs that are still in the archive."""

    def __init__(self, contexts: Path) -> None:
        self._final = contexts / TASKS
        self._gathered = contexts / f".{TASKS}.gathered"
        self._remove(self._gathered)
        self._rows = _fresh(self._gathered)
        with suppress(
            sqlite3.Error, OSError
        ):  # one that is damaged, or not there, is made from the jobs' folders
            for row in read_tasks(self._final):
                self.put(row)

    def put(self, row: Mapping[str, Any]) -> None:
        """A job's row, instead of an earlier one."""
        self._rows.execute(_INSERT, [row[name] for name in COLUMNS])

    def finish(self, present: Iterator[str], row_of: Callable[[str], Mapping[str, Any] | None]) -> None:
        """Puts the table in its place, with the jobs that are `present`; `row_of` makes the rows that are missing."""
        self._rows.execute("CREATE TABLE present (uuid TEXT PRIMARY KEY)")
        for job_id in present:
            self._rows.execute("INSERT OR IGNORE INTO present VALUES (?)", [job_id])
        missing = self._rows.execute("SELECT uuid FROM present WHERE uuid NOT IN (SELECT uuid FROM tasks)")
        for (job_id,) in missing.fetchall():
            if (row := row_of(job_id)) is not None:
                self.put(row)
        partial = self._final.with_name(f".{TASKS}.partial")
        self._remove(partial)
        with closing(_fresh(partial)) as made:
            wanted = f"SELECT {', '.join(COLUMNS)} FROM tasks WHERE uuid IN present ORDER BY uuid"  # noqa: S608 - our own words
            for row in self._rows.execute(wanted):
                made.execute(_INSERT, row)
            made.commit()
        with partial.open("r+b") as file:
            file.seek(_VERSION_AT)
            file.write(bytes(4))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._final)

    def close(self) -> None:
        self._rows.close()
        self._remove(self._gathered)

    @staticmethod
    def _remove(path: Path) -> None:
        for name in (path, path.with_name(f"{path.name}-journal")):
            name.unlink(missing_ok=True)


def _fresh(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA page_size=4096")
    connection.execute("PRAGMA synchronous=OFF")  # it is synchronised as a whole
    connection.execute(_TABLE)
    for name in _INDEXES:
        connection.execute(f"CREATE INDEX idx_tasks_{name} ON tasks({name})")
    return connection


def read_tasks(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a tasks.db, of whoever's making. Raises sqlite3.Error or OSError where it is damaged or not there."""
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    with _read_only(path) as connection:
        known = {row[1] for row in connection.execute("PRAGMA table_info(tasks)")}
        columns = ", ".join(name if name in known else f"NULL AS {name}" for name in COLUMNS)
        for row in connection.execute(f"SELECT {columns} FROM tasks"):  # noqa: S608 - our own words
            yield dict(zip(COLUMNS, row, strict=True))


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    # Nothing is written beside it, unless another program left a log of changes there that belong to it.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        yield connection


def tasks_of(contexts: Path, job_ids: Collection[str], tell: Tell) -> dict[str, dict[str, Any]]:
    """What the table says of these jobs; a job that only it knows, and a table that cannot be read, is told."""
    path, known = contexts / TASKS, set(job_ids)
    found: dict[str, dict[str, Any]] = {}
    try:
        for row in read_tasks(path):
            if row["uuid"] in known:
                found[row["uuid"]] = {name: row[name] for name in ("status", "error_message", "updated_at")}
            else:
                tell(
                    Problem(TASKS, None, f"names the job {str(row['uuid'])[:80]!r}, whose folder is missing")
                )
    except FileNotFoundError:
        if job_ids:
            tell(Problem(TASKS, None, "is missing: the jobs' folders say enough"))
    except (sqlite3.Error, OSError, ValueError) as error:
        tell(Problem(TASKS, None, f"cannot be read ({error}): the jobs' folders say enough"))
    return found


def missing_row(folder: JobFolder, job_id: str, place: str) -> dict[str, Any]:
    """The table's row for a job of which only its folder tells. Raises Unfit where that is no job's."""
    row = folder.read_row()
    if row is not None and row.get("id") == job_id and set(KEPT) <= set(row):
        return task_of(row)
    told = folder.read_document(METADATA) or {}
    status = "failed" if place == COMPLETED else place
    return dict.fromkeys(COLUMNS) | {
        "uuid": job_id,
        "status": "completed" if place == COMPLETED and folder.read_text(FINAL_SUMMARY) else status,
        "created_at": str(told.get("created_at") or timestamp(0.0)),
        "task_type": str(told.get("task_type") or "local"),
        **{name: str(told[name]) for name in ("task_identifier", "repository", "user") if told.get(name)},
        "total_messages": sum(1 for _ in folder.messages()),
        "total_summaries": 0,
        "total_tool_calls": 0,
    }
