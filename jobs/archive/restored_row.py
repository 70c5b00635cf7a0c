"""The row of a job that comes from an archive: what the archive says as far as it can be, and what must be so here.

Pure: the importer reads, and asks the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.pieces.model import Piece
from jobs.questions import question_reason
from jobs.reasons import Reason
from jobs.states import RESUME_EVENTS, TERMINAL, State
from jobs.submit import PRIORITIES, title_of
from jobs.views import view_of
from storage.archive import layout
from storage.archive.conform import Unfit, row_of
from storage.archive.reader import Found
from storage.archive.rows import KEPT, LEFT_OUT
from storage.models import jobs

ACTOR = "import"  # who pauses a job whose conversation an archive does not hold
_STATE_OF_FOLDER = {layout.RUNNING: State.QUEUED, layout.PAUSED: State.PAUSED}
_USUAL_REASON = {
    State.QUEUED: Reason.IMPORTED, State.COMPRESSING: Reason.CONTEXT_FULL, State.INHERITING: Reason.INHERITING,
    State.WAITING_SUBTASKS: Reason.SUBTASKS, State.SUCCEEDED: Reason.COMPLETED,
}  # fmt: skip
_FRESH_VISIT: dict[str, Any] = {
    "visit_seq": 0, "tail_seq": 0, "summary_seq": 0, "trim_seq": 0, "context_tokens": 0, "context_estimate": 0,
    "measured_tokens": 0, "context_marks": None, "shell_folder": None, "pending_call": None, "pending_question": None,
    "answer_due_at": None,
}  # fmt: skip
# What a conversation that goes on word for word needs: without one line of these it begins its movement anew.
NEEDED_TO_GO_ON = frozenset(
    {layout.MESSAGES, layout.MORE_OF_MESSAGES, layout.TOOL_CALLS, layout.JOB, layout.INPUTS}
)


@dataclass(frozen=True, slots=True)
class Source:
    """What an archive told of a job besides its own row."""

    job_id: str
    folder: str
    owner: str
    instruction: str
    piece: Piece
    metadata: Mapping[str, Any]  # of metadata.json
    task: Mapping[str, Any]  # of tasks.db
    has_final_summary: bool
    whole: bool  # it came with its own row, inputs and piece
    now: float


def restored_row(archived: Mapping[str, Any], source: Source, found: Found) -> tuple[dict[str, Any], bool]:
    """(the job's row, whether its present movement begins anew). Raises Unfit where it cannot be a job's row.

    A job that has not ended and whose conversation is not here as a whole is paused, and begins its movement anew.
    """
    row = _told(archived, source, found)
    _count(row, found)
    state = _state(row, source, found)
    broken = not source.whole or bool(found.lost & NEEDED_TO_GO_ON) or not _stands(row, source)
    anew = state not in TERMINAL and broken
    if anew:
        row |= _FRESH_VISIT
        row |= {"epoch": row.get("epoch", 0) + 1, "state": State.PAUSED, "resume_state": State.QUEUED}
        row |= {"reason": Reason.PAUSED_BY_USER, "reason_data": {"actor": ACTOR}, "completed_at": None}
        names = [movement.name for movement in source.piece.movements]
        if row.get("movement") not in names:
            row["movement"] = source.piece.initial_movement
    else:
        row |= _at_rest(row, state)
    fitted = row_of(jobs, row, KEPT)
    return _shown(fitted), anew


def _told(archived: Mapping[str, Any], source: Source, found: Found) -> dict[str, Any]:
    """The archive's row, what is missing taken from elsewhere in it."""
    given = dict(archived)
    for name in ("task_type", "task_identifier", "repository", "user"):
        text = source.metadata.get(name)
        if name not in given and isinstance(text, str):
            given[name] = text[:500]
    created = layout.seconds_of(source.metadata.get("created_at")) or found.first_at or source.now
    updated = layout.seconds_of(source.task.get("updated_at")) or found.last_at or created
    usual = {
        "title": title_of(source.instruction),
        "piece": source.piece.name,
        "movement": source.piece.initial_movement,
        "created_at": created,
        "available_at": created,
        "updated_at": updated,
    }
    return usual | given | {"id": source.job_id, "owner": source.owner}


def _count(row: dict[str, Any], found: Found) -> None:
    """Counters are never below what is there, and never negative."""
    for name, table in (
        ("total_messages", "messages"),
        ("event_seq", "job_events"),
        ("inbox_total", "comments"),
        ("total_summaries", "summaries"),
        ("total_tool_calls", "tool_calls"),
    ):
        told: int = row.get(name, 0)
        row[name] = max(told, found.last.get(table, 0), 0)
    for column in jobs.columns:
        value = row.get(column.name)
        if column.server_default is not None and isinstance(value, int | float) and column.name != "priority":
            row[column.name] = value if value > 0 else type(value)()
    row["inbox_seen"] = min(row.get("inbox_seen", 0), row["inbox_total"])
    row["priority"] = min(max(row.get("priority", 0), PRIORITIES[0]), PRIORITIES[-1])
    row["depth"] = min(row.get("depth", 0), 1000)
    if not is_question(row.get("pending_question")):
        row["pending_question"] = None
    if row.get("summary_state") not in {"none", "pending", "done", "failed"}:
        row["summary_state"] = "none"


def _state(row: dict[str, Any], source: Source, found: Found) -> State:
    """The state that it has here: none that needs a run."""
    try:
        state = State(row.get("state", ""))
    except ValueError:
        completed = source.folder == layout.COMPLETED
        state = _ended(row, source, found) if completed else _STATE_OF_FOLDER[source.folder]
    return State.QUEUED if state is State.RUNNING else state


def _ended(row: dict[str, Any], source: Source, found: Found) -> State:
    """How a job ended of which only others' words are known."""
    status = source.task.get("status")
    row["summary_state"] = "done" if source.has_final_summary else "none"
    if status == "completed" or (status is None and source.has_final_summary):
        row.setdefault("result", found.last_said)
        return State.SUCCEEDED
    why = source.task.get("error_message")
    row.setdefault("error_message", why if isinstance(why, str) else "how it ended is not told")
    return State.FAILED


def _stands(row: Mapping[str, Any], source: Source) -> bool:
    """Whether its pointers into the transcript, its movement and its question can be what a worker goes on from."""
    within = all(
        row.get(name, 0) <= row["total_messages"] for name in ("visit_seq", "tail_seq", "summary_seq")
    )
    known = row.get("movement") in [movement.name for movement in source.piece.movements]
    asks = State.WAITING_HUMAN in {row.get("state"), row.get("resume_state")}
    answerable = row.get("pending_call") is not None and is_question(row.get("pending_question"))
    return within and known and (answerable or not asks)


def is_question(asked: Any) -> bool:
    """Whether this can be shown, and answered, as a question."""
    if not isinstance(asked, dict) or not isinstance(asked.get("question"), str):
        return False
    choices = asked.get("choices", [])
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        return False
    until = asked.get("until", 0.0)
    return type(until) in (int, float) and isinstance(asked.get("default_answer", ""), str | None)


def _at_rest(row: Mapping[str, Any], state: State) -> dict[str, Any]:
    """State, reason and times that belong together."""
    values: dict[str, Any] = {"state": state}
    try:
        reason: Reason | None = Reason(row.get("reason") or "")
        values["reason_data"] = row.get("reason_data")
    except ValueError:
        reason = _USUAL_REASON.get(state)
        values["reason_data"] = None
        if state is State.PAUSED:
            reason, values["reason_data"] = Reason.PAUSED_BY_USER, {"actor": ACTOR}
        elif state is State.WAITING_HUMAN:
            reason, values["reason_data"] = Reason.QUESTION, question_reason(row["pending_question"])
    values["reason"] = reason
    resume = row.get("resume_state")
    values["resume_state"] = None
    if state is State.PAUSED:
        values["resume_state"] = resume if resume in set(RESUME_EVENTS) else State.QUEUED
    ended = row.get("completed_at")
    values["completed_at"] = None
    if state in TERMINAL:
        values["completed_at"] = row["updated_at"] if ended is None else ended
    return values


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The row, if every door can show it; else without what it says of its reason. Raises Unfit."""
    live = dict.fromkeys((*LEFT_OUT, "worker"))
    for candidate in (row, row | {"reason_data": None, "pending_question": None}):
        try:
            view_of({**candidate, **live}).as_dict()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, LookupError):
            continue
        return candidate
    raise Unfit("the job's row cannot be shown")
