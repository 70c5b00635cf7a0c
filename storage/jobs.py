"""Job rows as their submitters and owners see and change them. A run's own writes are in `checkpoints`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.audit import AuditRecord, add_record
from storage.comments import SYSTEM, add_comment
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database, wall_clock
from storage.errors import IllegalTransition, JobNotFound
from storage.final_size import AT_REST, final_size
from storage.final_summaries import owed_values, void_summary
from storage.history import append_events
from storage.hooks import add_hook_calls
from storage.limits import QueueRoom, check_room, one_at_a_time
from storage.listing import with_worker
from storage.models import TERMINAL_STATES, job_events, job_inputs, jobs, runs
from storage.parents import CANCELLED, child_ended, child_reopened
from storage.prepared import Prepared
from storage.records import Comment, HistoryEvent, NewEvent, StateHooks
from storage.text import clean_json, clean_text

_INPUTS = Prepared(
    sa.select(job_inputs).where(job_inputs.c.job_id == sa.bindparam("p_job")), returning=tuple(job_inputs.c)
)
_ADD_INPUTS = Prepared(sa.insert(job_inputs), columns=tuple(job_inputs.c.keys()))
_EVENTS_OF_KIND = Prepared(
    sa.select(job_events)
    .where(job_events.c.job_id == sa.bindparam("p_job"), job_events.c.kind == sa.bindparam("p_kind"))
    .order_by(job_events.c.seq),
    returning=tuple(job_events.c),
)
JobRow = dict[str, Any]  # every column of the job; `worker` too where a read joins it


def insert_job(
    db: Database,
    values: dict[str, Any],
    instruction: str,
    piece: dict[str, Any],
    *events: NewEvent,
    note: str | None = None,
    audit: AuditRecord | None = None,
    room: QueueRoom | None = None,
) -> tuple[str, JobRow | None]:
    """Inserts a job with its inputs, first history rows, comment and audit record in one transaction: (id, its row).

    Where (owner, idempotency_key) is taken already, nothing is written: (the existing job's id, None).
    Raises TooManyQueued where `room` has none left.
    """
    values = clean_json_values(values)
    with db.write(together=True) as conn:
        if room is not None:
            one_at_a_time(db, conn)
        key = values.get("idempotency_key")
        existing = job_with_key(conn, values["owner"], key)
        if existing is not None:
            return existing, None
        if room is not None:
            check_room(conn, room, values["owner"])
        try:
            with nullcontext() if key is None else conn.begin_nested():
                row = insert_new_row(conn, values, instruction, piece, *events, note=note)
        except sa.exc.IntegrityError:  # Postgres: another submitter with the same key committed in between
            existing = job_with_key(conn, values["owner"], key)
            if existing is None:
                raise
            return existing, None
        if audit is not None:
            add_record(conn, audit)
        crash_point(CrashPoint.SUBMIT_COMMITTING)
    crash_point(CrashPoint.SUBMIT_COMMITTED)
    return row["id"], row


def insert_new_row(
    conn: Connection,
    values: dict[str, Any],
    instruction: str,
    piece: dict[str, Any],
    *events: NewEvent,
    note: str | None = None,
) -> JobRow:
    """A new job's rows: its own (`values` are plain and clean), its inputs', its first events', a comment by the system.

    Returns its own.
    """
    counters = {"event_seq": len(events), "inbox_total": int(note is not None)}
    values = {"user_key": values.get("user") or "", **counters, **values}
    given = {f"p_{name}": value for name, value in values.items()}
    row: JobRow = _insert_job(tuple(values)).all(conn, given)[0]._asdict()
    created = row["created_at"]
    inputs = {"job_id": values["id"], "instruction": clean_text(instruction), "piece": clean_json(piece)}
    _ADD_INPUTS.run(conn, inputs)
    append_events(conn, values["id"], events, last_seq=len(events), now=created, run_id=None)
    if note is not None:
        add_comment(conn, Comment(values["id"], 1, "comment", SYSTEM, note, created))
    return row


@lru_cache
def _insert_job(names: tuple[str, ...]) -> Prepared:
    """Of a row with these columns; a time that is not among them is now."""
    values: dict[str, Any] = dict.fromkeys(
        ("created_at", "updated_at", "available_at", "woken_at"), wall_clock()
    )
    values |= {name: sa.bindparam(f"p_{name}", type_=jobs.c[name].type) for name in names}
    return Prepared(sa.insert(jobs).values(values).returning(*jobs.c), returning=tuple(jobs.c))


def clean_json_values(values: dict[str, Any]) -> dict[str, Any]:
    """Column values with their text cleaned; SQL expressions pass."""
    return {name: clean_json(value) for name, value in values.items()}


def find_job_with_key(db: Database, owner: str, key: str | None) -> str | None:
    """The id of the owner's job with this idempotency key."""
    with db.read() as conn:
        return job_with_key(conn, clean_text(owner), None if key is None else clean_text(key))


def job_with_key(conn: Connection, owner: str, key: str | None) -> str | None:
    """The id of the owner's job with this idempotency key."""
    if key is None:
        return None
    return conn.execute(
        sa.select(jobs.c.id).where(jobs.c.owner == owner, jobs.c.idempotency_key == key)
    ).scalar_one_or_none()


class LockedJob:
    """A job whose row this transaction holds. Its `row` is what the lock found; each write is guarded by it.

    `woken_parent`: it waited for this job alone, which has ended here: its wake-up is to be sent after the commit.
    `owes_summary`: it has ended here, and its final summary is to be written: another wake-up.
    """

    def __init__(
        self, conn: Connection, row: JobRow, hooks: StateHooks | None, *, final_summaries: bool
    ) -> None:
        self.conn = conn
        self.row = row
        self.woken_parent: str | None = None
        self.owes_summary = False
        self._hooks = hooks
        self._final_summaries = final_summaries
        self._event_seq: int = row["event_seq"]

    def update(self, values: dict[str, Any], *events: NewEvent) -> None:
        """Writes columns and history rows. Raises IllegalTransition if the state is no longer what the lock found.

        An end, and a retry, is counted in the parent's row too; a cancelled job's open children are marked. A job that
        ends owes its final summary; one that goes on again does not.
        """
        before, after = self.row["state"], values.get("state", self.row["state"])
        if after == CANCELLED and before != after:
            values = values | {"cascade_pending": self.row["children_open"] > 0}
        if after in AT_REST and before != after:
            values = final_size() | values
        ends = after in TERMINAL_STATES and before not in TERMINAL_STATES
        goes_on = before in TERMINAL_STATES and after not in TERMINAL_STATES
        if ends and self._final_summaries:
            values = owed_values(self.row["steps"]) | values
            self.owes_summary = self.row["steps"] > 0
        elif goes_on:
            values = void_summary(self.conn, self.row["summary_run_id"]) | values
        self._event_seq += len(events)
        changed = self.conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == self.row["id"], jobs.c.state == self.row["state"])
            .values(clean_json_values(values) | {"event_seq": self._event_seq})
        )
        if changed.rowcount != 1:
            raise IllegalTransition(self.row["id"], self.row["state"], events[0].kind if events else "update")
        append_events(
            self.conn,
            self.row["id"],
            events,
            last_seq=self._event_seq,
            now=self.row["updated_at"],
            run_id=self.row["run_id"],
        )
        parent_id = self.row["parent_id"]
        if parent_id is not None and ends:
            self.woken_parent = child_ended(self.conn, parent_id)
        elif parent_id is not None and goes_on:
            child_reopened(self.conn, parent_id)
        if values.get("state", self.row["state"]) != self.row["state"]:
            add_hook_calls(self.conn, self._hooks, self.row["id"], values["state"])

    def add_comment(self, author: str, text: str, answers_call: str | None = None) -> Comment:
        """Appends a comment; its number is the job's next. The count itself is written by `update`."""
        number, now = self.row["inbox_total"] + 1, self.row["updated_at"]
        return add_comment(
            self.conn, Comment(self.row["id"], number, "comment", author, text, now, answers_call)
        )

    def end_run(self, outcome: str) -> None:
        """Ends the run that owns the job: what it still writes is refused."""
        self.conn.execute(
            sa.update(runs)
            .where(runs.c.id == self.row["run_id"], runs.c.ended_at.is_(None))
            .values(ended_at=wall_clock(), outcome=outcome)
        )


@contextmanager
def job_tx(db: Database, job_id: str, owner: str | None = None) -> Iterator[LockedJob]:
    """A transaction that begins by updating, and so locking, the job's row. Raises JobNotFound (also when not yours)."""
    with db.write() as conn:
        guard = [jobs.c.id == clean_text(job_id)]
        if owner is not None:
            guard.append(jobs.c.owner == clean_text(owner))
        statement = sa.update(jobs).where(*guard).values(updated_at=wall_clock()).returning(*jobs.c)
        row = conn.execute(statement).one_or_none()
        if row is None:
            raise JobNotFound(job_id)
        yield LockedJob(conn, row._asdict(), db.hooks, final_summaries=db.final_summaries)
        crash_point(CrashPoint.CONTROL_COMMITTING)
    crash_point(CrashPoint.CONTROL_COMMITTED)


def get_job(db: Database, job_id: str, owner: str | None = None) -> JobRow:
    """The job's row and the worker of its present run. Raises JobNotFound (also when it is not `owner`'s)."""
    with db.read() as conn:
        row = conn.execute(with_worker().where(jobs.c.id == clean_text(job_id))).one_or_none()
    if row is None or (owner is not None and row.owner != clean_text(owner)):
        raise JobNotFound(job_id)
    return row._asdict()


def job_ids_like(db: Database, part: str, owner: str | None, limit: int = 10) -> list[str]:
    """Ids that begin with `part`; where there are none, ids that end with it. Oldest first.

    The ends are what tells jobs of the same minute apart: an id begins with its time.
    """
    part = clean_text(part)
    begins = sa.and_(
        jobs.c.id >= part, jobs.c.id < part + "z"
    )  # ids are hexadecimal; "z" is last in any collation
    ends = jobs.c.id.endswith(part, autoescape=True)
    mine = sa.true() if owner is None else jobs.c.owner == clean_text(owner)
    with db.read() as conn:
        for match in (begins, ends):
            found = list(
                conn.execute(
                    sa.select(jobs.c.id).where(match, mine).order_by(jobs.c.id).limit(limit)
                ).scalars()
            )
            if found:
                return found
    return []


def get_inputs(db: Database, job_id: str) -> tuple[str, dict[str, Any]]:
    """The job's instruction and its frozen piece."""
    with db.read() as conn:
        row = _INPUTS.one_or_none(conn, {"p_job": job_id})
    if row is None:
        raise JobNotFound(job_id)
    return row.instruction, row.piece


def list_events(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[HistoryEvent]:
    """History rows with seq > `after`, in order."""
    mine = sa.select(job_events).where(job_events.c.job_id == job_id, job_events.c.seq > after)
    with db.read() as conn:
        rows = conn.execute(mine.order_by(job_events.c.seq).limit(limit))
        return [HistoryEvent(**row) for row in rows.mappings()]


def list_events_of_kind(db: Database, job_id: str, kind: str) -> list[HistoryEvent]:
    """All history rows of one kind, in order."""
    with db.read() as conn:
        rows = _EVENTS_OF_KIND.all(conn, {"p_job": job_id, "p_kind": kind})
        return [HistoryEvent(**row._asdict()) for row in rows]


def overdue_questions(db: Database, limit: int) -> list[str]:
    """Jobs that wait for an answer whose time is over, longest first."""
    statement = (
        sa.select(jobs.c.id)
        .where(jobs.c.answer_due_at <= wall_clock(), jobs.c.state == "waiting_human")
        .order_by(jobs.c.answer_due_at)
        .limit(limit)
    )
    with db.read() as conn:
        return list(conn.execute(statement).scalars())
