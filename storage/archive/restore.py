"""From an archive's rows to the database, in transactions of bounded size: workers go on meanwhile.

Until its last transaction the job belongs to nobody and is paused, so that no one sees or runs it: whoever dies before
leaves what `storage.removal` clears away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.archive.rows import KEPT, archived_row
from storage.audit import AuditRecord, add_record
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database
from storage.errors import SostenutoError
from storage.models import TERMINAL_STATES, job_inputs, jobs, messages, runs
from storage.removal import NOBODY
from storage.text import clean_json, clean_text

AT_ONCE = 1000  # rows in one transaction
MOST_BYTES = 4 << 20  # of their text, about
_PLACEHOLDER = {
    "owner": NOBODY, "title": NOBODY, "state": "paused", "resume_state": "queued", "piece": "", "movement": "",
    "available_at": 0.0, "created_at": 0.0, "updated_at": 0.0,
}  # fmt: skip
_SAID = ("role", "content", "tool_calls", "tool_call_id")


class RowsRefused(SostenutoError):
    """The database refuses a row of the archive; nothing of the job is to be seen."""

    def __init__(self, job_id: str, why: str) -> None:
        super().__init__(f"the database refuses a row of job {job_id}: {why}")
        self.job_id = job_id


def stored_row(db: Database, job_id: str) -> dict[str, Any] | None:
    """The job's row at rest, as an archive has it; None where there is no such job."""
    with db.read() as conn:
        row = conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).one_or_none()
    return None if row is None else archived_row(row._asdict())


def stored_inputs(db: Database, job_id: str) -> tuple[str, dict[str, Any]] | None:
    """The job's instruction and piece."""
    with db.read() as conn:
        row = conn.execute(sa.select(job_inputs).where(job_inputs.c.job_id == job_id)).one_or_none()
    return None if row is None else (row.instruction, row.piece)


def holds_messages(db: Database, job_id: str, archived: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the stored transcript has every one of these messages, word for word; it may have more."""
    columns = [messages.c[name] for name in ("seq", *_SAID)]
    statement = sa.select(*columns).where(messages.c.job_id == job_id).order_by(messages.c.seq)
    with db.snapshot() as conn:
        stored = iter(conn.execution_options(yield_per=200).execute(statement).mappings())
        for message in archived:
            for row in stored:
                if row["seq"] >= message["seq"]:
                    break
            else:
                return False
            if row["seq"] != message["seq"] or any(row[name] != message[name] for name in _SAID):
                return False
    return True


def free_key(db: Database, owner: str, key: str | None) -> bool:
    """Whether no other job of this owner has this idempotency key."""
    same = sa.select(jobs.c.id).where(jobs.c.owner == owner, jobs.c.idempotency_key == key)
    with db.read() as conn:
        return key is None or conn.execute(same).first() is None


def taken_runs(db: Database, run_ids: Iterable[str]) -> set[str]:
    """Those of these ids that runs of other jobs have."""
    with db.read() as conn:
        return set(conn.execute(sa.select(runs.c.id).where(runs.c.id.in_(list(run_ids)))).scalars())


def restore_job(
    db: Database,
    job_id: str,
    inputs: tuple[str, Mapping[str, Any]],
    rows: Iterable[tuple[sa.Table, dict[str, Any]]],
    *,
    finish: Callable[[], Mapping[str, Any]],
    before_commit: Callable[[], None],
    audit: AuditRecord,
) -> None:
    """Inserts a job that is not there. `finish` gives its own row when all others were read; `before_commit` is called
    just before the commit with which it is there. Raises RowsRefused, StorageError, or what the two raise; then nothing
    of it is to be seen.
    """
    with _refusals_told(job_id):
        begun = False
        for batch in _batches(rows):
            with db.write() as conn:
                begun = _begin(conn, job_id, inputs, begun=begun)
                _insert(conn, job_id, batch)
                crash_point(CrashPoint.IMPORT_COMMITTING)
            crash_point(CrashPoint.IMPORT_COMMITTED)
        row = {name: value for name, value in finish().items() if name in KEPT and name != "id"}
        row["user_key"] = row["user"] or ""  # as every inserted job has it
        with db.write() as conn:
            _begin(conn, job_id, inputs, begun=begun)
            conn.execute(sa.update(jobs).where(jobs.c.id == job_id, jobs.c.owner == NOBODY).values(row))
            add_record(conn, audit)
            before_commit()
            crash_point(CrashPoint.IMPORT_COMMITTING)
        crash_point(CrashPoint.IMPORT_COMMITTED)


@contextmanager
def _refusals_told(job_id: str) -> Iterator[None]:
    """What the database does not take becomes RowsRefused."""
    try:
        yield
    except (sa.exc.IntegrityError, sa.exc.DataError, sa.exc.ProgrammingError) as error:
        raise RowsRefused(job_id, str(error.orig).strip().partition("\n")[0]) from error


def _begin(conn: Connection, job_id: str, inputs: tuple[str, Mapping[str, Any]], *, begun: bool) -> bool:
    if not begun:
        conn.execute(sa.insert(jobs).values(id=job_id, **_PLACEHOLDER))
        instruction, piece = inputs
        values = {"job_id": job_id, "instruction": clean_text(instruction), "piece": clean_json(piece)}
        conn.execute(sa.insert(job_inputs).values(values))
    return True


def _insert(conn: Connection, job_id: str, batch: list[tuple[sa.Table, dict[str, Any]]]) -> None:
    tables: dict[sa.Table, list[dict[str, Any]]] = {}
    for table, row in batch:
        tables.setdefault(table, []).append(row | {"job_id": job_id})
    for table, found in tables.items():
        conn.execute(sa.insert(table), found)


def _batches(
    rows: Iterable[tuple[sa.Table, dict[str, Any]]],
) -> Iterator[list[tuple[sa.Table, dict[str, Any]]]]:
    batch: list[tuple[sa.Table, dict[str, Any]]] = []
    size = 0
    for table, row in rows:
        batch.append((table, row))
        size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        if len(batch) >= AT_ONCE or size >= MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def real_children_open(db: Database, job_id: str) -> int | None:
    """How many subtasks of the job have not ended, where its row says another number; None where it is right."""
    child = jobs.alias("child")
    open_now = (
        sa.select(sa.func.count())
        .select_from(child)
        .where(child.c.parent_id == jobs.c.id, child.c.state.not_in(TERMINAL_STATES))
        .correlate(jobs)
        .scalar_subquery()
    )
    statement = sa.select(open_now).where(jobs.c.id == job_id, jobs.c.children_open != open_now)
    with db.read() as conn:
        return conn.execute(statement).scalar_one_or_none()
