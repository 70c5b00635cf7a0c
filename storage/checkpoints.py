"""A run's writes. One lock rule: the first statement of each is the guarded UPDATE of the job's own row.

`WHERE id AND run_id` is the fence: a zombie, a run whose lease was taken, updates nothing, and nothing of its
transaction is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.comments import add_comment
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database
from storage.errors import IllegalTransition, InboxChanged, LeaseLost, NoOpenChildren, RequestPending
from storage.fenced_update import LIMITS, update_if_run_owns
from storage.history import append_events
from storage.hooks import add_hook_calls
from storage.images import add_images
from storage.live import drop_live
from storage.models import comments, jobs, messages, tool_calls
from storage.parents import child_ended
from storage.plans import add_plan
from storage.prepared import Prepared
from storage.records import Checkpoint, Comment, Committed, Message, NewEvent, NewMessage, RunRef
from storage.run_rows import end_run
from storage.summaries import add_summary
from storage.text import clean_json, clean_text

_APPEND_MESSAGES = Prepared(sa.insert(messages), columns=("job_id", *Message.__slots__))
_OPEN_CALLS = Prepared(
    sa.insert(tool_calls),
    columns=("job_id", "call_id", "message_seq", "position", "name", "arguments", "state", "started_at"),
)
_THIS_CALL = (tool_calls.c.job_id == sa.bindparam("p_job"), tool_calls.c.call_id == sa.bindparam("p_call"))
_PARK_CALL = Prepared(
    sa.update(tool_calls).where(*_THIS_CALL, tool_calls.c.state == "open").values(state="parked")
)
_CLOSE_CALL = Prepared(
    sa.update(tool_calls)
    .where(*_THIS_CALL, tool_calls.c.state != "done")
    .values(
        state="done",
        result_seq=sa.bindparam("p_seq"),
        is_error=sa.bindparam("p_is_error"),
        ended_at=sa.bindparam("p_now"),
    )
)


def commit_if_run_owns(db: Database, run: RunRef, checkpoint: Checkpoint) -> Committed:
    """Commits `checkpoint` in one transaction, if `run` still owns its job.

    Raises LeaseLost (the run must stop), InboxChanged (a comment arrived: show it first), NoOpenChildren
    (see `Checkpoint.expect_children`), RequestPending (see `Move.unless`), IllegalTransition, or a StorageError; nothing is written then, except that a DatabaseUnavailable leaves open whether the commit happened.
    """
    woken = None
    checkpoint.values = clean_json(checkpoint.values)  # in place: callers take over what the database holds
    cleaned = [_cleaned(message) for message in checkpoint.messages]  # here, where no lock is held yet
    with db.write(together=True) as conn:
        row = _update_job(db, conn, run, checkpoint)
        now = row.updated_at
        written = _append_messages(conn, run, cleaned, row, now)
        _close_and_open_calls(conn, run, checkpoint, written, now)
        append_events(
            conn, run.job_id, _all_events(checkpoint), last_seq=row.event_seq, now=now, run_id=run.run_id
        )
        if checkpoint.plan is not None:
            add_plan(conn, run.job_id, written[0], checkpoint.plan)
        if checkpoint.images:
            add_images(conn, run.job_id, checkpoint.images)
        if checkpoint.summary is not None:
            number = row.total_summaries
            add_summary(
                conn, run.job_id, checkpoint.summary, number, visit=row.visit, now=now, message=written[0]
            )
        if checkpoint.inbox_seen is not None and row.inbox_total:
            _mark_delivered(conn, run, checkpoint.inbox_seen, row)
        if checkpoint.ends_live:
            drop_live(conn, run.job_id)
        if checkpoint.remark is not None:
            _add_remark(conn, run, *checkpoint.remark, row)
        if checkpoint.move is not None:
            end_run(conn, run.run_id, checkpoint.move.outcome, checkpoint.move.steps)
            if row.parent_id is not None and checkpoint.move.terminal:
                woken = child_ended(conn, row.parent_id)
            add_hook_calls(conn, db.hooks, run.job_id, checkpoint.move.target)
        crash_point(CrashPoint(f"{checkpoint.what}.committing"))
    crash_point(CrashPoint(f"{checkpoint.what}.committed"))
    return Committed(
        messages=written,
        inbox_total=row.inbox_total,
        pause_requested=row.pause_requested,
        cancel_requested=row.cancel_requested,
        children_total=row.children_total,
        limits={name: getattr(row, name) for name in LIMITS},
        woken_parent=woken,
    )


def _update_job(db: Database, conn: Connection, run: RunRef, checkpoint: Checkpoint) -> Any:
    events = len(_all_events(checkpoint))
    row = update_if_run_owns(conn, run, checkpoint, events=events, owes_summary=db.final_summaries)
    if row is None:
        raise _refusal(conn, run, checkpoint)
    return row


def _refusal(conn: Connection, run: RunRef, checkpoint: Checkpoint) -> Exception:
    found = conn.execute(
        sa.select(
            jobs.c.state,
            jobs.c.run_id,
            jobs.c.inbox_total,
            jobs.c.children_open,
            jobs.c.pause_requested,
            jobs.c.cancel_requested,
        ).where(jobs.c.id == run.job_id)
    ).one_or_none()
    if found is None or found.run_id != run.run_id:
        return LeaseLost(run.job_id, run.run_id)
    if checkpoint.expect_children and not found.children_open:
        return NoOpenChildren(run.job_id)
    if checkpoint.expect_inbox is not None and found.inbox_total != checkpoint.expect_inbox:
        return InboxChanged(run.job_id, found.inbox_total - checkpoint.expect_inbox)
    assert checkpoint.move is not None
    if any(getattr(found, name) for name in checkpoint.move.unless):
        return RequestPending(run.job_id, cancel=found.cancel_requested)
    return IllegalTransition(run.job_id, found.state, checkpoint.move.event)


def _cleaned(message: NewMessage) -> dict[str, Any]:
    """Its fields as they are stored."""
    return {
        "role": message.role,
        "kind": message.kind,
        "content": None if message.content is None else clean_text(message.content),
        "tool_calls": clean_json(message.tool_calls),
        "tool_call_id": None if message.tool_call_id is None else clean_text(message.tool_call_id),
        "tool_name": None if message.tool_name is None else clean_text(message.tool_name),
        "is_error": message.is_error,
        "extra": clean_json(message.extra),
        "tokens": message.tokens,
    }


def _append_messages(
    conn: Connection, run: RunRef, cleaned: Sequence[dict[str, Any]], row: Any, now: float
) -> tuple[Message, ...]:
    first = row.total_messages - len(cleaned) + 1
    written = tuple(
        Message(seq=first + index, visit=row.visit, run_id=run.run_id, created_at=now, **fields)
        for index, fields in enumerate(cleaned)
    )
    _APPEND_MESSAGES.run_each(conn, [_message_row(run, message) for message in written])
    return written


def _message_row(run: RunRef, message: Message) -> dict[str, Any]:
    return {"job_id": run.job_id} | {name: getattr(message, name) for name in Message.__slots__}


def _close_and_open_calls(
    conn: Connection, run: RunRef, checkpoint: Checkpoint, written: Sequence[Message], now: float
) -> None:
    for message in written:
        if message.role == "tool":
            _close_call(conn, run, message, now)
        elif message.tool_calls:
            _OPEN_CALLS.run_each(
                conn, [_call_row(run, message, *item) for item in enumerate(message.tool_calls)]
            )
    for call_id in checkpoint.parks:
        _PARK_CALL.run(conn, {"p_job": run.job_id, "p_call": clean_text(call_id)})


def _call_row(run: RunRef, message: Message, position: int, call: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": run.job_id,
        "call_id": call["id"],
        "message_seq": message.seq,
        "position": position,
        "name": call["name"],
        "arguments": call["arguments"],
        "state": "open",
        "started_at": message.created_at,
    }


def _close_call(conn: Connection, run: RunRef, message: Message, now: float) -> None:
    """One result per call, whoever is quicker: a second one finds no open call, and its transaction fails."""
    closed = _CLOSE_CALL.run(
        conn,
        {
            "p_job": run.job_id,
            "p_call": message.tool_call_id,
            "p_seq": message.seq,
            "p_is_error": message.is_error,
            "p_now": now,
        },
    )
    if closed != 1:
        raise RuntimeError(f"call {message.tool_call_id} of job {run.job_id} already has its result")


def _all_events(checkpoint: Checkpoint) -> list[NewEvent]:
    if (move := checkpoint.move) is None:
        return checkpoint.events
    source = move.sources[0] if len(move.sources) == 1 else None
    data = {"reason": move.reason, **(move.reason_data or {})}
    return [*checkpoint.events, NewEvent(move.event, "worker", source, move.target, data)]


def _mark_delivered(conn: Connection, run: RunRef, number: int, row: Any) -> None:
    """The next step is the first that knows of these comments."""
    shown_with = row.total_messages or None
    conn.execute(
        sa.update(comments)
        .where(comments.c.job_id == run.job_id, comments.c.number <= number, comments.c.seen_step.is_(None))
        .values(seen_seq=shown_with, seen_step=row.steps + 1)
    )


def _add_remark(conn: Connection, run: RunRef, kind: str, text: str, row: Any) -> None:
    add_comment(conn, Comment(run.job_id, row.inbox_total, kind, "agent", text, row.updated_at))
