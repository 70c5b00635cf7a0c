"""Removing ended jobs, in short transactions: a worker never waits for one.

A job is first put out of everybody's sight by one guarded update; then its rows go, a batch at a time, and its own row last.
Whoever dies in between leaves a job that nobody sees, which `unfinished_removals` names.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from storage.audit import AuditRecord, add_record
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.jobs import JobRow
from storage.models import TERMINAL_STATES, jobs, metadata

NOBODY = "(removed)"  # the owner of a job that is being removed or imported: no one has a title and no reason as well
AT_ONCE = 1000  # rows of a table in one transaction


def removable(db: Database, older_than: float, after: str, limit: int) -> list[JobRow]:
    """Jobs with ids > `after` that ended `older_than` seconds ago and that nothing needs any more, by id.

    Left out: a job with a subtask (these go first), a subtask of a job that is to stay, one that an unfinished job
    continues, one whose final summary is still to be written.
    """
    statement = (
        sa.select(jobs).where(jobs.c.id > after, *_may_go(older_than)).order_by(jobs.c.id).limit(limit)
    )
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(statement)]


def _may_go(older_than: float) -> list[sa.ColumnElement[bool]]:
    parent, child, follower = (jobs.alias(name) for name in ("parent", "child", "follower"))
    before = wall_clock() - older_than
    parent_goes = sa.exists().where(
        parent.c.id == jobs.c.parent_id, parent.c.state.in_(TERMINAL_STATES), parent.c.completed_at <= before
    )
    return [
        jobs.c.owner != NOBODY,
        jobs.c.state.in_(TERMINAL_STATES),
        jobs.c.completed_at <= before,
        jobs.c.summary_state != "pending",
        jobs.c.children_open == 0,
        sa.or_(jobs.c.parent_id.is_(None), parent_goes),
        ~sa.exists().where(child.c.parent_id == jobs.c.id),
        ~sa.exists().where(follower.c.inherits_from == jobs.c.id, follower.c.state.not_in(TERMINAL_STATES)),
    ]


def hide_if_removable(db: Database, row: JobRow, older_than: float, audit: AuditRecord) -> bool:
    """Puts the job out of sight and records its removal, if it may still go and is as `row` says; False: nothing changed."""
    with db.write() as conn:
        hidden = conn.execute(
            sa.update(jobs)
            .where(
                jobs.c.id == row["id"],
                jobs.c.updated_at == row["updated_at"],
                jobs.c.event_seq == row["event_seq"],
                *_may_go(older_than),
            )
            .values(**_OUT_OF_SIGHT)
        )
        if hidden.rowcount != 1:
            return False
        add_record(conn, audit)
        crash_point(CrashPoint.REMOVE_COMMITTING)
    crash_point(CrashPoint.REMOVE_COMMITTED)
    return True


_OUT_OF_SIGHT: dict[str, Any] = {
    "owner": NOBODY,
    "title": NOBODY,
    "reason": None,
    "reason_data": None,
    "idempotency_key": None,
    "task_identifier": None,
}


def unfinished_removals(db: Database, state: str | None = None) -> list[str]:
    """Jobs whose removal, or import, was begun and not finished; `state`: only those in it."""
    hidden = [jobs.c.owner == NOBODY, jobs.c.title == NOBODY, jobs.c.reason.is_(None)]
    if state is not None:
        hidden.append(jobs.c.state == state)
    with db.read() as conn:
        return list(conn.execute(sa.select(jobs.c.id).where(*hidden).order_by(jobs.c.id)).scalars())


def remove_hidden(db: Database, job_id: str) -> None:
    """Deletes the rows of a job that is out of sight. Raises StorageError; then the rest is for the next time."""
    for table in metadata.sorted_tables:
        if "job_id" in table.c and table.name != "audit_log":
            while _remove_some(db, table, job_id):
                crash_point(CrashPoint.REMOVE_COMMITTED)
    with db.write() as conn:
        conn.execute(sa.delete(jobs).where(jobs.c.id == job_id, jobs.c.owner == NOBODY))
        crash_point(CrashPoint.REMOVE_COMMITTING)


def _remove_some(db: Database, table: sa.Table, job_id: str) -> bool:
    """Whether there may be more."""
    key = table.primary_key.columns
    some = sa.select(*key).where(table.c.job_id == job_id).limit(AT_ONCE)
    with db.read() as conn:
        if conn.execute(some.limit(1)).first() is None:
            return False
    with db.write() as conn:
        removed = conn.execute(sa.delete(table).where(sa.tuple_(*key).in_(some)))
        return removed.rowcount == AT_ONCE


def vacuum(db: Database) -> None:
    """Gives the space of removed rows back, on SQLite; Postgres does so by itself. Raises StorageError.

    Writers wait meanwhile, for about a second a gigabyte: it is done only where there is much to win.
    """
    if not db.is_sqlite:
        return
    with db.read() as conn:
        free, pages = (
            conn.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_count")
        )
    if free * 4 >= pages:
        with db.outside_transactions() as conn:
            conn.exec_driver_sql("VACUUM")
            conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
