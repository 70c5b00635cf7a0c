"""The guarded UPDATE with which every write of a run begins, made once for each shape of checkpoint.

Building a statement costs several times what running it does, so that checkpoints which differ only in their values
share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import wall_clock
from storage.final_size import AT_REST, final_size
from storage.final_summaries import owed_values
from storage.models import jobs
from storage.parents import CANCELLED
from storage.prepared import Prepared
from storage.records import Checkpoint, RunRef
from storage.text import clean_json

LIMITS = ("max_steps", "max_tokens", "max_cost", "max_seconds")
_SPENDING = ("steps", "prompt_tokens", "completion_tokens", "cost", "active_seconds")
_RETURNED = (
    jobs.c.visit,
    jobs.c.updated_at,
    jobs.c.event_seq,
    jobs.c.inbox_total,
    jobs.c.total_messages,
    jobs.c.total_summaries,
    jobs.c.pause_requested,
    jobs.c.cancel_requested,
    jobs.c.parent_id,
    jobs.c.children_total,
    jobs.c.steps,
    *(jobs.c[name] for name in LIMITS),
)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What makes two checkpoints one statement with other parameters."""

    assigned: tuple[str, ...]  # columns that take a given value
    added: tuple[str, ...]  # columns that grow by a given number
    begins_visit: bool
    summary: bool
    remark: bool
    expect_inbox: bool
    expect_children: bool
    sources: tuple[str, ...]  # the states that it may move the job from; none: the job stays in its state
    unless: tuple[str, ...]
    delayed: bool
    completes: bool
    rests: bool
    cascades: bool
    owes_summary: bool


def update_if_run_owns(
    conn: Connection, run: RunRef, checkpoint: Checkpoint, *, events: int, owes_summary: bool
) -> Any | None:
    """Brings the job's row up to the checkpoint and returns what its other writes need. None: nothing was written,
    because the run does not own the job any more or one of the checkpoint's own conditions does not hold.

    `events` is how many history rows follow; `owes_summary`: a job that ends here owes a final summary.
    """
    assigned, added = _assigned(checkpoint), _added(checkpoint, events)
    move = checkpoint.move
    shape = _Shape(
        assigned=tuple(assigned),
        added=tuple(added),
        begins_visit=checkpoint.begins_visit,
        summary=checkpoint.summary is not None,
        remark=checkpoint.remark is not None,
        expect_inbox=checkpoint.expect_inbox is not None,
        expect_children=checkpoint.expect_children,
        sources=tuple(str(source) for source in move.sources) if move is not None else (),
        unless=move.unless if move is not None else (),
        delayed=move is not None and bool(move.delay),
        completes=move is not None and move.terminal,
        rests=move is not None and move.target in AT_REST,
        cascades=move is not None and move.target == CANCELLED,
        owes_summary=owes_summary and move is not None and move.terminal,
    )
    given: dict[str, Any] = {f"p_{name}": value for name, value in (assigned | added).items()}
    given |= {"p_job": run.job_id, "p_run": run.run_id, "p_inbox": checkpoint.expect_inbox}
    given |= {"p_worked": checkpoint.steps, "p_appended": len(checkpoint.messages)}
    if move is not None:
        given["p_delay"] = move.delay
    return _statement(shape).one_or_none(conn, given)


def _assigned(checkpoint: Checkpoint) -> dict[str, Any]:
    values: dict[str, Any] = dict(checkpoint.values)
    if checkpoint.inbox_seen is not None and checkpoint.remark is None:
        values["inbox_seen"] = checkpoint.inbox_seen
    if (move := checkpoint.move) is not None:
        values |= {
            "state": move.target,
            "reason": move.reason,
            "reason_data": clean_json(move.reason_data),
            "run_id": None,
            "pause_requested": False,
            "cancel_requested": False,
        }
        if move.forgives_attempts:
            values["attempt"] = 0
    return values


def _added(checkpoint: Checkpoint, events: int) -> dict[str, float]:
    added = {
        "total_messages": len(checkpoint.messages),
        "total_tool_calls": sum(1 for message in checkpoint.messages if message.role == "tool"),
        "event_seq": events,
        **{name: getattr(checkpoint, name) for name in _SPENDING},
    }
    return {name: number for name, number in added.items() if number}


@lru_cache(maxsize=256)
def _statement(shape: _Shape) -> Prepared:
    """The guarded UPDATE. Made once for each shape: making one anew costs several times what running it does."""
    values: dict[str, Any] = {"updated_at": wall_clock()}
    values |= {name: _parameter(name) for name in shape.assigned}
    values |= {name: jobs.c[name] + _parameter(name) for name in shape.added}
    if shape.begins_visit:
        values["visit_seq"] = jobs.c.total_messages + 1
    if shape.summary:
        values["summary_seq"] = jobs.c.total_messages + 1
        values["total_summaries"] = jobs.c.total_summaries + 1
    if shape.remark:  # the agent has seen what it said itself
        values["inbox_total"] = values["inbox_seen"] = jobs.c.inbox_total + 1
    if shape.sources:
        values |= _move_values(shape)
    if shape.rests:
        tokens = values.get("context_tokens", jobs.c.context_tokens)
        values |= final_size(tokens, appended=sa.bindparam("p_appended", type_=sa.Integer()))
    update = sa.update(jobs).where(*_guards(shape)).values(values)
    return Prepared(update.returning(*_RETURNED), returning=_RETURNED)


def _parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(f"p_{name}", type_=jobs.c[name].type)


def _guards(shape: _Shape) -> list[sa.ColumnElement[bool]]:
    guards = [jobs.c.id == sa.bindparam("p_job"), jobs.c.run_id == sa.bindparam("p_run")]
    if shape.expect_inbox:
        guards.append(jobs.c.inbox_total == sa.bindparam("p_inbox"))
    if shape.expect_children:
        guards.append(jobs.c.children_open > 0)
    if shape.sources:
        guards.append(sa.or_(*(jobs.c.state == source for source in shape.sources)))
        guards.extend(jobs.c[name].is_(False) for name in shape.unless)
    return guards


def _move_values(shape: _Shape) -> dict[str, Any]:
    values: dict[str, Any] = {"completed_at": wall_clock() if shape.completes else None}
    if shape.delayed:
        values["available_at"] = wall_clock() + sa.bindparam("p_delay", type_=sa.Double())
    else:
        values["available_at"] = values["woken_at"] = wall_clock()  # the run sends the wake-up itself, next
    if shape.cascades:
        values["cascade_pending"] = jobs.c.children_open > 0
    if shape.owes_summary:
        values |= owed_values(jobs.c.steps + sa.bindparam("p_worked", type_=sa.Integer()))
    return values
