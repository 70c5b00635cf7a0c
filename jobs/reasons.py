"""Why a job is in its state, and what happens or helps next: the same words in CLI, API and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jobs.durations import format_duration
from jobs.states import State
from storage.limits import Hold


class Reason(StrEnum):
    """One for each state but `running`."""

    NEW = "new"
    INHERITING = "inheriting"
    SCHEDULED = "scheduled"
    LIMITED = "limited"
    SLICE_OVER = "slice_over"
    MODEL_UNAVAILABLE = "model_unavailable"
    RATE_LIMITED = "rate_limited"
    WORKER_LOST = "worker_lost"
    WORKER_STOPPED = "worker_stopped"
    RESUMED = "resumed"
    RETRIED = "retried"
    ANSWERED = "answered"
    CONTEXT_FULL = "context_full"
    COMPACTING = "compacting"
    COMPACTED = "compacted"
    CONTEXT_KEPT = "context_kept"
    SUBTASKS = "subtasks"
    SUBTASKS_DONE = "subtasks_done"
    PAUSED_BY_USER = "paused_by_user"
    BUDGET_EXCEEDED = "budget_exceeded"
    QUESTION = "question"
    COMPLETED = "completed"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MODEL_REFUSED = "model_refused"
    MODEL_ERROR = "model_error"
    MODEL_NOT_CONFIGURED = "model_not_configured"
    MCP_SERVER_MISSING = "mcp_server_missing"
    AUTHENTICATION = "authentication"
    QUOTA = "quota"
    CONTEXT_EXHAUSTED = "context_exhausted"
    NO_TRANSITION = "no_transition"
    LOOP = "loop"
    TOO_MANY_MOVEMENTS = "too_many_movements"
    TOO_MANY_REVISITS = "too_many_revisits"
    INTERNAL_ERROR = "internal_error"
    ABORTED_BY_AGENT = "aborted_by_agent"
    CANCELLED_BY_USER = "cancelled_by_user"
    IMPORTED = "imported"
    MOVING = "moving"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Wording:
    """`text` and `next` are templates over the reason's data and {id}."""

    text: str
    next: str


_RETRY = "continue it from its last checkpoint with: sostenuto retry {id}"

WORDINGS: dict[Reason, Wording] = {
    Reason.NEW: Wording("waiting for a worker", "a worker takes it as soon as one is free"),
    Reason.INHERITING: Wording(
        "waits for the summary of job {predecessor}",
        "it goes on when that is written; at {at} at the latest, with that job's last messages",
    ),
    Reason.SCHEDULED: Wording("scheduled for {at}", "it becomes due by itself"),
    Reason.LIMITED: Wording(
        "limit of {limit} running for {kind} {value}", "it goes on by itself when one of them ends or waits"
    ),
    Reason.SLICE_OVER: Wording("between two slices of work", "a worker takes it on as soon as one is free"),
    Reason.MODEL_UNAVAILABLE: Wording(
        "the model did not answer: {detail}", "it is tried again by itself at {at}"
    ),
    Reason.RATE_LIMITED: Wording("rate limit of {endpoint} until {at}", "it goes on by itself"),
    Reason.WORKER_LOST: Wording("its worker {worker} died or lost its lease", "another worker takes it on"),
    Reason.WORKER_STOPPED: Wording("its worker {worker} was stopped in order", "another worker takes it on"),
    Reason.RESUMED: Wording("resumed", "a worker takes it as soon as one is free"),
    Reason.RETRIED: Wording(
        "to be retried from its last checkpoint", "a worker takes it as soon as one is free"
    ),
    Reason.ANSWERED: Wording("its question was answered", "a worker takes it on as soon as one is free"),
    Reason.CONTEXT_FULL: Wording(
        "its context is to be summarised", "a worker of the context queue does it, then the job goes on"
    ),
    Reason.COMPACTING: Wording("its context is being summarised", "it goes on by itself"),
    Reason.COMPACTED: Wording("its context was summarised", "a worker takes it on as soon as one is free"),
    Reason.CONTEXT_KEPT: Wording(
        "its context could not be summarised: {detail}", "it goes on with what it has, as far as that fits"
    ),
    Reason.SUBTASKS: Wording(
        "waits for {children_open} of {children_total} subtasks",
        "it goes on when they have ended; see them with: sostenuto list --parent {id}",
    ),
    Reason.SUBTASKS_DONE: Wording("its subtasks have ended", "a worker takes it on as soon as one is free"),
    Reason.PAUSED_BY_USER: Wording("paused by {actor}", "go on with: sostenuto resume {id}"),
    Reason.BUDGET_EXCEEDED: Wording(
        "its {budget} budget of {limit} is used up", "raise it with: sostenuto resume {id} --max-{budget} N"
    ),
    Reason.QUESTION: Wording("asks a person: {question}", 'answer with: sostenuto reply {id} "…"'),
    Reason.COMPLETED: Wording("completed", "its files: sostenuto files list {id}"),
    Reason.ATTEMPTS_EXHAUSTED: Wording("its worker died {attempts} times in a row while running it", _RETRY),
    Reason.MODEL_REFUSED: Wording("the model refused: {detail}", _RETRY),
    Reason.MODEL_ERROR: Wording("the model's endpoint refused the request: {detail}", _RETRY),
    Reason.MODEL_NOT_CONFIGURED: Wording(
        "its worker has no model to ask: {detail}", "restart the worker with one, then " + _RETRY
    ),
    Reason.MCP_SERVER_MISSING: Wording(
        "its worker lacks the MCP server {server} that its piece requires: {detail}",
        "mend the mcp: block of the workers' settings, then " + _RETRY,
    ),
    Reason.AUTHENTICATION: Wording(
        "the model's endpoint refused the key: {detail}", "mend OPENAI_API_KEY, then " + _RETRY
    ),
    Reason.QUOTA: Wording(
        "the quota of the model's endpoint is used up: {detail}", "raise it, then " + _RETRY
    ),
    Reason.CONTEXT_EXHAUSTED: Wording("its context no longer fits the model's window: {detail}", _RETRY),
    Reason.NO_TRANSITION: Wording("the model never ended its movement: {detail}", _RETRY),
    Reason.LOOP: Wording("its agent went round in circles: {detail}", _RETRY),
    Reason.TOO_MANY_MOVEMENTS: Wording("it used up its {limit} movements", _RETRY),
    Reason.TOO_MANY_REVISITS: Wording(
        "it came back to the movement {movement} after {limit} visits in a row", _RETRY
    ),
    Reason.INTERNAL_ERROR: Wording("an error in Sostenuto: {detail}", "please report it, then " + _RETRY),
    Reason.ABORTED_BY_AGENT: Wording("its agent gave up: {detail}", _RETRY),
    Reason.CANCELLED_BY_USER: Wording("cancelled by {actor}", _RETRY),
    Reason.IMPORTED: Wording("goes on from an archive", "a worker takes it on as soon as one is free"),
    Reason.MOVING: Wording(
        "being moved to another installation",
        "finish it with: sostenuto export {id} --move --to DIR; or keep it here with: sostenuto resume {id}",
    ),
    Reason.MOVED: Wording(
        "moved to another installation",
        "it goes on where its archive was imported; only if it was not, continue it here with: sostenuto retry {id}",
    ),
}


_QUESTION_WITH_DEADLINE = Wording(
    "asks a person, until {at}: {question}",
    'answer with: sostenuto reply {id} "…"; at {at} it goes on by itself with: {default}',
)


class _Forgiving(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"({key} unknown)"


def reason_of(row: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """A job's reason and its data. A limit that holds it comes before what it waits for otherwise."""
    if row["state"] == State.QUEUED and row["held_for"]:
        hold = Hold.of(row["held_for"])
        return Reason.LIMITED, {"limit": hold.limit, "kind": hold.key.kind, "value": hold.key.value}
    return row["reason"], row["reason_data"] or {}


def explain(state: str, reason: str | None, data: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(why, what next) in words. A running job needs none; what was asked of it is explained instead."""
    if state == State.RUNNING:
        if data.get("cancel_requested"):
            return "cancelling", "its model call and tools are being stopped"
        if data.get("pause_requested"):
            return "pausing after this step", "it pauses at the next step boundary"
        return None, None
    if reason is None:
        return None, None
    wording = WORDINGS[Reason(reason)]
    if reason == Reason.QUESTION and "until" in data:
        wording = _QUESTION_WITH_DEADLINE
    known = _Forgiving(data)
    if reason == Reason.BUDGET_EXCEEDED and "limit" in data:
        known["limit"] = _amount(data["limit"], is_time=data.get("budget") == "time")
    return wording.text.format_map(known), wording.next.format_map(known)


def _amount(limit: float, *, is_time: bool) -> str:
    return format_duration(limit) if is_time else f"{limit:,}".removesuffix(".0")
