"""A job's rows as they are archived. What a live run holds is put to rest, so that the job can go on elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.models import jobs
from storage.text import clean_json

# What is this installation's own: who or what holds the job now, and when somebody was told of it; and what follows
# from other columns.
LEFT_OUT = (
    "held_for", "user_key", "run_id", "woken_at", "summary_run_id", "summary_woken_at", "pause_requested", "cancel_requested",
)  # fmt: skip
KEPT = tuple(column.name for column in jobs.columns if column.name not in LEFT_OUT)

IMPORTED = "imported"  # the reason of a job that ran, and goes on from an archive
MOVING = "moving"  # the reason of a job that is paused so that it can be moved; `reason_data` says what it was before
MOVED = "moved"  # the reason of a job that was closed here because it goes on elsewhere
EXPORTED = "exported"  # the outcome of a run that was going on
_PAGE = 200


def archived_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The job's row at rest: what a worker that finds it elsewhere can claim, or a person can act on.

    A running job is queued; one that a person asked to pause or to end has done so. One that is being moved is what it
    was before.
    """
    kept = {name: clean_json(row[name]) for name in KEPT}
    if row["state"] == "paused" and row["reason"] == MOVING:
        return kept | before_moving(row)
    if row["state"] == "running":
        return kept | _rested(row)
    if row["state"] == "compressing" and row["run_id"] is not None:
        kept |= {"reason": "context_full", "reason_data": None}
    return kept


def _rested(row: Mapping[str, Any]) -> dict[str, Any]:
    asked = {"actor": "a person"}
    if row["cancel_requested"]:
        ended = {"state": "cancelled", "reason": "cancelled_by_user", "reason_data": asked}
        return ended | {"completed_at": row["updated_at"], "resume_state": None}
    if row["pause_requested"]:
        return {
            "state": "paused",
            "resume_state": "queued",
            "reason": "paused_by_user",
            "reason_data": asked,
        }
    return {"state": "queued", "reason": IMPORTED, "reason_data": None}


def moving_data(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a job's `reason_data` keeps of it while it is being moved."""
    names = ("state", "resume_state", "reason", "reason_data")
    return {name: row[name] for name in names} | {"waits_for": row["resume_state"]}


def before_moving(row: Mapping[str, Any]) -> dict[str, Any]:
    """What it was, but for what happened to it meanwhile: an answer, or its last subtask's end, moved it on."""
    before = dict(row["reason_data"] or {})
    waits_for = before.pop("waits_for", None)
    if row["resume_state"] == waits_for:
        return before
    goes_on = {"reason": IMPORTED, "reason_data": None}
    if before.get("state") == "paused":
        return before | {"resume_state": row["resume_state"]}
    return goes_on | {"state": row["resume_state"] or "queued", "resume_state": None}


def stream(
    conn: Connection, statement: sa.Select[Any], job_id: str, table: sa.Table
) -> Iterator[dict[str, Any]]:
    """Rows of a job, in the statement's order, a page at a time; registered secrets masked."""
    wanted = statement.where(table.c.job_id == job_id)
    for row in conn.execution_options(yield_per=_PAGE).execute(wanted).mappings():
        yield clean_json(dict(row))
