"""How a run ends in order: one commit that moves the job out of `running`, and what that leaves to do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from jobs.errors import IllegalTransition, RequestPending
from jobs.reasons import Reason
from jobs.shares import KINDS, spent
from jobs.states import TERMINAL, Event, State, target
from jobs.wakeups import AGENT_QUEUE, QUEUE_OF_STATE, SUMMARY
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database
from storage.final_summaries import give_back_summary
from storage.records import Checkpoint, Commit, Move, NewMessage, RunRef
from worker.job_run import JobRun
from worker.model.errors import ModelError, ModelErrorKind

MOST_MODEL_FAILURES = 8  # calls in a row that failed for a passing reason
SUSPECT_SHARE = 0.1  # of a slice, for a job whose last run died: others like it wait for their turn
FIRST_BACKOFF = 1.0  # seconds, doubled with each failure in a row
LONGEST_BACKOFF = 120.0


@dataclass(frozen=True, slots=True)
class Ending:
    """The state a run left its job in, committed."""

    state: State
    reason: Reason

    @property
    def queue(self) -> str | None:
        """Where the job is due now, and its wake-up still to be sent; None where it waits for something."""
        waits = self.reason in (Reason.MODEL_UNAVAILABLE, Reason.RATE_LIMITED)
        return None if waits else QUEUE_OF_STATE.get(self.state)


def end(
    job: JobRun,
    event: Event,
    reason: Reason,
    data: dict[str, Any] | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    delay: float = 0.0,
) -> Ending:
    """Commits the end of the run, with whatever else `checkpoint` holds, and returns it. Raises as `JobRun.commit`.

    Where the job would go on later, but a person asked to cancel or pause it during the last step, that is done.
    """
    checkpoint = checkpoint or Checkpoint(Commit.END)
    if checkpoint.summary is None:
        checkpoint.what = Commit.END
    checkpoint.move = leaving(State(job.row["state"]), event, reason, data, delay)
    try:
        return _commit_end(job, checkpoint, checkpoint.move, resume_state=State.QUEUED)
    except RequestPending as request:
        waited_for = State(checkpoint.move.target)
        checkpoint.move = _asked_for(request)
        return _commit_end(job, checkpoint, checkpoint.move, resume_state=waited_for)


def _commit_end(job: JobRun, checkpoint: Checkpoint, move: Move, *, resume_state: State) -> Ending:
    state, reason = State(move.target), Reason(move.reason)
    job.account(checkpoint)
    if state in TERMINAL and "pending_call" in checkpoint.values:  # cancelled while it was asking
        checkpoint.values |= {"pending_call": None, "pending_question": None, "answer_due_at": None}
    if state is State.PAUSED:
        checkpoint.values["resume_state"] = resume_state
    if state is State.FAILED:
        checkpoint.values["error_message"] = failure_text(reason, move.reason_data)
    job.commit(checkpoint)
    return Ending(state, reason)


def _asked_for(request: RequestPending) -> Move:
    """The end that a person asked for, instead of one after which the job would go on."""
    event, reason = (
        (Event.CANCEL, Reason.CANCELLED_BY_USER) if request.cancel else (Event.PAUSE, Reason.PAUSED_BY_USER)
    )
    return leaving(State.RUNNING, event, reason, {"actor": "a person"})


def leaving(
    source: State, event: Event, reason: Reason, data: dict[str, Any] | None = None, delay: float = 0.0
) -> Move:
    """The move that `event` makes with a job that a run holds: a running or a compressing one."""
    state = target(source, event)
    assert state is not None, f"{event} is not legal in a {source} job"
    # An end after which the job would go on gives way to a person's request; a pause, to a cancel.
    requests: tuple[str, ...] = () if state in TERMINAL else ("cancel_requested",)
    if state is not State.PAUSED and requests:
        requests = ("pause_requested", *requests)
    return Move(
        event=event,
        sources=(source,),
        unless=requests,
        target=state,
        reason=reason,
        reason_data=data,
        terminal=state in TERMINAL,
        outcome=event,
        delay=delay,
    )


def give_back(db: Database, ref: RunRef, worker: str) -> list[tuple[str, str]]:
    """Requeues the job of a run that stopped without an ending of its own.

    A final summary's run gives the summary back. Returns the wake-ups to be sent: (job, queue). Raises LeaseLost,
    StorageError.
    """
    if give_back_summary(db, ref):
        return [(ref.job_id, SUMMARY)]
    try:
        return _give_back(db, ref, worker, State.RUNNING)
    except IllegalTransition:  # a compaction's run: what people ask of such a job is done at once
        return _give_back(db, ref, worker, State.COMPRESSING)


def _give_back(db: Database, ref: RunRef, worker: str, state: State) -> list[tuple[str, str]]:
    move = leaving(state, Event.REQUEUE, Reason.WORKER_STOPPED, {"worker": worker})
    move.forgives_attempts = False
    try:
        commit_if_run_owns(db, ref, Checkpoint(Commit.END, move=move))
        return [(ref.job_id, QUEUE_OF_STATE[State(move.target)])]
    except RequestPending as request:
        move = _asked_for(request)
        move.forgives_attempts = False
        values = {} if request.cancel else {"resume_state": State.QUEUED}
        committed = commit_if_run_owns(db, ref, Checkpoint(Commit.END, move=move, values=values))
        return [] if committed.woken_parent is None else [(committed.woken_parent, AGENT_QUEUE)]


def fail_run(db: Database, ref: RunRef, state: State, reason: Reason, detail: str) -> str | None:
    """Fails the job of a run that could not even load it; returns the parent to be woken. Raises LeaseLost, StorageError."""
    data = {"detail": detail}
    values = {"error_message": failure_text(reason, data)}
    checkpoint = Checkpoint(Commit.END, values=values, move=leaving(state, Event.FAIL, reason, data))
    return commit_if_run_owns(db, ref, checkpoint).woken_parent


def failure_text(reason: Reason, data: dict[str, Any] | None) -> str:
    """The job's error message: what happened, without the hint."""
    detail = (data or {}).get("detail")
    return f"{reason}: {detail}" if detail else str(reason)


def end_at_boundary(job: JobRun) -> Ending | None:
    """What ends a run between two steps: a pause, a used-up budget, a shutdown, the end of its slice."""
    settings = job.process.settings
    if job.live.pause:
        return end(job, Event.PAUSE, Reason.PAUSED_BY_USER, {"actor": "a person"})
    if exceeded := exceeded_budget(job):
        return end(job, Event.EXHAUST_BUDGET, Reason.BUDGET_EXCEEDED, exceeded)
    if job.process.leaving:
        return end(job, Event.REQUEUE, Reason.WORKER_STOPPED, {"worker": job.process.name})
    if job.committed_steps >= settings.slice_steps or job.seconds > settings.slice_seconds:
        return end(job, Event.REQUEUE, Reason.SLICE_OVER)
    if job.live.suspect and job.committed_steps and job.seconds > settings.slice_seconds * SUSPECT_SHARE:
        # It did not kill its worker: it is cleared, and makes room for the next suspect.
        return end(job, Event.REQUEUE, Reason.SLICE_OVER)
    return None


def exceeded_budget(job: JobRun) -> dict[str, Any] | None:
    """The first limit that is reached, by the job and its subtasks together, as the reason's data."""
    if all(job.row[f"max_{kind}"] is None for kind in KINDS):
        return None
    for name, value in spent(job.process.db, job.row).items():
        limit = job.row[f"max_{name}"]
        if limit is not None and value >= limit:
            return {"budget": "time" if name == "seconds" else name, "limit": limit, "spent": value}
    return None


_FINAL_REASONS = {
    ModelErrorKind.AUTHENTICATION: Reason.AUTHENTICATION,
    ModelErrorKind.QUOTA: Reason.QUOTA,
    ModelErrorKind.OVERFLOW: Reason.CONTEXT_EXHAUSTED,
    ModelErrorKind.BAD_REQUEST: Reason.MODEL_ERROR,
    ModelErrorKind.CAPABILITY: Reason.MODEL_ERROR,
}


def end_after_model_error(job: JobRun, error: ModelError, checkpoint: Checkpoint) -> Ending:
    """A passing failure gives the job back with a due time, freeing the worker; any other one fails it."""
    detail = str(error)
    if error.kind in _FINAL_REASONS:
        return end(job, Event.FAIL, _FINAL_REASONS[error.kind], {"detail": detail}, checkpoint=checkpoint)
    failures = job.row["model_failures"] + 1
    passing = passing_wait(job, error, failures)
    counts = error.kind is not ModelErrorKind.RATE_LIMIT  # a busy endpoint is no broken one
    if passing is None or (counts and failures >= MOST_MODEL_FAILURES):
        data = {"detail": f"{failures} calls in a row failed, the last one: {detail}"}
        return end(job, Event.FAIL, Reason.MODEL_ERROR, data, checkpoint=checkpoint)
    if counts:
        checkpoint.values["model_failures"] = failures
    reason, delay, told = passing
    return end(job, Event.REQUEUE, reason, told, checkpoint=checkpoint, delay=delay)


def passing_wait(
    job: JobRun, error: ModelError, failures: int
) -> tuple[Reason, float, dict[str, Any]] | None:
    """Why, how long and with which words to wait after a failure that may pass; None for one that will not."""
    if error.kind in _FINAL_REASONS:
        return None
    now = job.process.db.clock()
    if error.kind is ModelErrorKind.RATE_LIMIT:
        wait = error.limit_wait
        # Of a limit of ours the database gives turns out apart from each other.
        delay = max(0.1, wait) if error.own_limit else _spread(wait)
        told = {"endpoint": error.endpoint, "until": now + delay, "detail": str(error)}
        return Reason.RATE_LIMITED, delay, told
    wait = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (failures - 1))
    delay = _spread(wait if error.retry_after is None else error.retry_after)
    return Reason.MODEL_UNAVAILABLE, delay, {"detail": str(error), "until": now + delay}


def _spread(seconds: float) -> float:
    """A wait a little longer, by chance, so that jobs do not come back in step."""
    return max(0.1, seconds) * random.uniform(1.0, 1.2)


def tool_message(call_id: str, name: str, content: str, *, is_error: bool, tokens: int) -> NewMessage:
    """A call's result as a transcript row."""
    return NewMessage(
        "tool", "tool", content, tool_call_id=call_id, tool_name=name, is_error=is_error, tokens=tokens
    )
