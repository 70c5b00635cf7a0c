"""Valid job rows in any state, made as fast as a test wants them, and the writes of a run without a worker."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from jobs.pieces import Library, freeze
from jobs.reasons import Reason
from jobs.states import LEASED, TERMINAL, Event, State
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database, wall_clock
from storage.limits import LimitOf
from storage.models import job_events, job_inputs, jobs, runs
from storage.records import Checkpoint, Commit, Committed, Move, NewMessage, RunRef
from storage.runs import Claim, claim_best

OWNER = "local"
WORKER = "host:1"
LEASE = 60.0
CALL = "c1"  # the parked call of a job that waits for a person

REASONS: dict[State, tuple[Reason | None, dict[str, Any] | None]] = {
    State.INHERITING: (Reason.NEW, None),
    State.QUEUED: (Reason.NEW, None),
    State.RUNNING: (None, None),
    State.COMPRESSING: (Reason.RESUMED, None),
    State.PAUSED: (Reason.PAUSED_BY_USER, {"actor": OWNER}),
    State.WAITING_HUMAN: (Reason.QUESTION, {"question": "Which colour?"}),
    State.WAITING_SUBTASKS: (Reason.RESUMED, None),
    State.SUCCEEDED: (Reason.COMPLETED, None),
    State.FAILED: (Reason.MODEL_REFUSED, {"detail": "no"}),
    State.ABORTED: (Reason.ABORTED_BY_AGENT, {"detail": "no use"}),
    State.CANCELLED: (Reason.CANCELLED_BY_USER, {"actor": OWNER}),
}


def new_id(prefix: str = "job") -> str:
    """An id that no other row has."""
    return f"{prefix}-{uuid.uuid4().hex}"


def job_row(state: str = State.QUEUED, **changes: Any) -> dict[str, Any]:
    """Columns of a job that every CHECK accepts, in `state`. A leased one has a run id (see `make_job`)."""
    kind = State(state)
    reason, data = REASONS[kind]
    row: dict[str, Any] = {
        "id": new_id(),
        "owner": OWNER,
        "title": "a job",
        "state": kind,
        "reason": reason,
        "reason_data": data,
        "piece": "general",
        "movement": "work",
        "event_seq": 1,
        "run_id": new_id("run") if kind is State.RUNNING else None,
        "resume_state": State.QUEUED if kind is State.PAUSED else None,
        "error_message": "it failed" if kind in (State.FAILED, State.ABORTED) else None,
        "result": "done" if kind is State.SUCCEEDED else None,
    }
    if kind is State.WAITING_HUMAN:
        row |= {"pending_call": CALL, "pending_question": {"question": "Which colour?"}}
    for name in ("created_at", "updated_at", "available_at", "woken_at"):
        row[name] = wall_clock()
    row["completed_at"] = wall_clock() if kind in TERMINAL else None
    return row | changes


def submitted_row(**changes: Any) -> dict[str, Any]:
    """The same of a queued job as a submitter gives them: plain values, the times left to the database."""
    return {
        name: value for name, value in job_row(**changes).items() if not isinstance(value, sa.ClauseElement)
    }


def make_job(db: Database, state: str = State.QUEUED, **changes: Any) -> str:
    """Inserts a job in `state`, with its inputs, its first history row and, where it is leased, its run."""
    return make_jobs(db, 1, state, **changes)[0]


def make_jobs(db: Database, count: int, state: str = State.QUEUED, **changes: Any) -> list[str]:
    """Many at once, oldest first."""
    return [str(row["id"]) for row in _insert(db, [job_row(state, **changes) for _ in range(count)])]


def running_jobs(db: Database, count: int, **changes: Any) -> list[RunRef]:
    """Running jobs with the runs that own them."""
    rows = _insert(db, [job_row(State.RUNNING, **changes) for _ in range(count)])
    return [RunRef(row["run_id"], row["id"]) for row in rows]


def running_job(db: Database, **changes: Any) -> RunRef:
    """A running job and the run that owns it."""
    return running_jobs(db, 1, **changes)[0]


def _insert(db: Database, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    leased = [row for row in rows if row["run_id"] is not None]
    assert all(row["state"] in LEASED for row in leased)
    piece = freeze(Library(None).get("general"))
    with db.write() as conn:
        now: float = conn.execute(sa.select(wall_clock())).scalar_one()
        settled = [{name: _settled(conn, now, value) for name, value in row.items()} for row in rows]
        conn.execute(sa.insert(jobs), settled)
        ids = [str(row["id"]) for row in rows]
        conn.execute(
            sa.insert(job_inputs), [{"job_id": i, "instruction": "Do it.", "piece": piece} for i in ids]
        )
        conn.execute(
            sa.insert(job_events),
            [
                {"job_id": row["id"], "seq": row["event_seq"], "kind": "submit", "at": now, "actor": OWNER}
                for row in settled
                if row["event_seq"]
            ],
        )
        if leased:
            conn.execute(
                sa.insert(runs),
                [
                    {
                        "id": row["run_id"],
                        "job_id": row["id"],
                        "kind": "agent",
                        "worker": WORKER,
                        "attempt": 0,
                        "claimed_at": now,
                        "lease_expires_at": now + LEASE,
                    }
                    for row in leased
                ],
            )
    return rows


def _settled(conn: sa.Connection, now: float, value: Any) -> Any:
    """A column's value in place of an SQL expression, so that many rows are one statement."""
    if isinstance(value, wall_clock):
        return now
    if isinstance(value, sa.ColumnElement):
        return conn.execute(sa.select(value)).scalar_one()
    return value


def clone_job(db: Database, job_id: str, count: int, **changes: str) -> None:
    """Copies a job's row `count` times by one statement; `changes` are SQL expressions over the number `n`."""
    columns = [column.name for column in jobs.columns if column.name != "id"]
    copied = ", ".join(changes.get(name, f'j."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    with db.write() as conn:
        conn.execute(
            sa.text(
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
                f"INSERT INTO jobs (id, {names}) SELECT j.id || '-' || n, {copied} "
                "FROM jobs AS j, numbers WHERE j.id = :id"
            ),
            {"count": count, "id": job_id},
        )


def claim(
    worker: str = WORKER,
    *,
    lease: float = LEASE,
    allow_suspects: bool = True,
    run_id: str | None = None,
    limit_of: LimitOf | None = None,
) -> Claim:
    """What a worker asks for."""
    return Claim(
        run_id=run_id or new_id("run"),
        worker=worker,
        kind="agent",
        source=State.QUEUED,
        target=State.RUNNING,
        event=Event.CLAIM,
        lease_seconds=lease,
        allow_suspects=allow_suspects,
        limit_of=limit_of,
    )


def claim_job(db: Database, job_id: str, **how: Any) -> RunRef:
    """Claims this very job, which must be the best one due."""
    asked = claim(**how)
    row = claim_best(db, asked, job_id)
    assert row is not None, "nothing is due"
    assert row["id"] == job_id, "another job is better"
    return RunRef(asked.run_id, job_id)


def commit(db: Database, run: RunRef, *messages: NewMessage, **fields: Any) -> Committed:
    """One checkpoint of the run."""
    return commit_if_run_owns(db, run, Checkpoint(Commit.REPLY, messages=list(messages), **fields))


def move(target: str, event: str, *, sources: Iterable[str] = (State.RUNNING,), **changes: Any) -> Move:
    """A run's end that leads to `target`."""
    values: dict[str, Any] = {"reason": Reason.COMPLETED, "terminal": target in TERMINAL} | changes
    return Move(event=event, sources=tuple(sources), target=target, **values)


def said(text: str | None, *calls: tuple[str, str, str]) -> NewMessage:
    """A reply of the model; `calls` are (id, name, arguments)."""
    made = [{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls]
    return NewMessage("assistant", "assistant", text, tool_calls=made or None, tokens=7)


def returned(call_id: str, text: str, *, name: str = "Bash", is_error: bool = False) -> NewMessage:
    """A call's result."""
    return NewMessage("tool", "tool", text, tool_call_id=call_id, tool_name=name, is_error=is_error, tokens=5)


def job_now(db: Database, job_id: str) -> dict[str, Any]:
    """Every column of the job's row."""
    with db.read() as conn:
        return conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).one()._asdict()


def set_columns(db: Database, job_id: str, **values: Any) -> None:
    """Puts columns of a job into a state that no public call leads to at once."""
    with db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(values))


def expire_lease(db: Database, run: RunRef, seconds: float = 1.0) -> None:
    """Lets the run's lease end `seconds` ago."""
    with db.write() as conn:
        ended = wall_clock() - seconds
        conn.execute(sa.update(runs).where(runs.c.id == run.run_id).values(lease_expires_at=ended))


def rows_of(db: Database, table: sa.Table, job_id: str) -> list[dict[str, Any]]:
    """Every row of a job in one of its tables, in key order."""
    with db.read() as conn:
        found = sa.select(table).where(table.c.job_id == job_id).order_by(*table.primary_key.columns)
        return [row._asdict() for row in conn.execute(found)]


def table_counts(db: Database, job_id: str) -> dict[str, int]:
    """How many rows each table has for a job: what an operation that was refused may not have changed."""
    from storage.models import metadata

    with db.read() as conn:
        return {
            table.name: conn.execute(
                sa.select(sa.func.count()).select_from(table).where(table.c.job_id == job_id)
            ).scalar_one()
            for table in metadata.sorted_tables
            if "job_id" in table.c
        }
