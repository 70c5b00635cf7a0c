"""How a job and its subtasks share one budget.

A job's limit covers all that its descendants spend. A subtask that has not ended counts with its whole limit, which it
may still use; one that has ended with what it and its own subtasks spent. A new subtask gets half of what is left, so
that something is left for its parent and for the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from jobs.errors import UsageError
from jobs.states import TERMINAL
from storage.engine import Database
from storage.subtasks import list_descendants

Amounts = dict[str, float]
KINDS = ("steps", "tokens", "cost", "seconds")
_WHOLE = ("steps", "tokens")  # the others may be split as finely as one likes


def spent_alone(row: Mapping[str, Any]) -> Amounts:
    """What the job's own runs have spent."""
    return {
        "steps": row["steps"],
        "tokens": row["prompt_tokens"] + row["completion_tokens"],
        "cost": row["cost"],
        "seconds": row["active_seconds"],
    }


def spent(db: Database, row: Mapping[str, Any]) -> Amounts:
    """What counts against the job's limits: its own spending, and what its subtasks spent or may still spend."""
    own = spent_alone(row)
    if not row["children_total"]:
        return own
    children = defaultdict(list)
    for descendant in list_descendants(db, row["id"]):
        children[descendant["parent_id"]].append(descendant)
    return {kind: own[kind] + _given(children, row["id"], kind) for kind in KINDS}


def _given(children: Mapping[str, list[dict[str, Any]]], job_id: str, kind: str) -> float:
    total = 0.0
    for child in children.get(job_id, ()):
        used = spent_alone(child)[kind] + _given(children, child["id"], kind)
        limit = child[f"max_{kind}"]
        ended = child["state"] in TERMINAL
        total += used if ended or limit is None else max(used, limit)
    return total


def child_limits(db: Database, parent: Mapping[str, Any]) -> dict[str, float]:
    """The limits of a new subtask, for each kind that its parent has a limit of. Raises UsageError where too little is left."""
    limited = [kind for kind in KINDS if parent[f"max_{kind}"] is not None]
    gone = spent(db, parent) if limited else {}
    limits: dict[str, float] = {}
    for kind in limited:
        limit = parent[f"max_{kind}"]
        share = (limit - gone[kind]) / 2
        if kind in _WHOLE:
            share = int(share)
        if share <= 0:
            raise UsageError(
                f"too little is left of this job's budget of {limit:g} {kind} for a subtask",
                hint="do the rest yourself, or wait until other subtasks have ended",
            )
        limits[f"max_{kind}"] = share
    return limits
