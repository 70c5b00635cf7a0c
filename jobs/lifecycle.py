"""What people do to a job: pause, resume, cancel, retry. Each is one transaction that first locks the job's row."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

from jobs.audit import note
from jobs.errors import IllegalTransition, JobNotFound, UsageError
from jobs.inheritance import LONGEST_WAIT, go_on_if_ready, let_followers_go_on
from jobs.installation import Installation
from jobs.questions import question_reason
from jobs.reasons import Reason
from jobs.states import RESUME_EVENTS, TERMINAL, Event, State, target
from jobs.views import JobView, get_job
from jobs.wakeups import AGENT_QUEUE, QUEUE_OF_STATE, SUMMARY
from storage.engine import wall_clock
from storage.jobs import LockedJob, job_tx
from storage.records import NewEvent
from storage.subtasks import end_cascade, unfinished_children

MOST_BUDGET = 1_000_000_000  # of any limit, as in the settings; the database's integers hold it


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a job; None: unlimited. `max_seconds` counts running, not waiting."""

    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def given(self) -> dict[str, float]:
        """The limits that are set. Raises UsageError for one that is not positive, or too large to be meant."""
        limits = {name: value for name, value in asdict(self).items() if value is not None}
        for name, value in limits.items():
            if not value > 0:
                raise UsageError(f"{name} is {value}, it must be more than 0")
            if value > MOST_BUDGET:
                raise UsageError(f"{name} is {value}, at most {MOST_BUDGET:,} is possible")
        return limits


def pause(installation: Installation, job_id: str, owner: str | None, actor: str) -> JobView:
    """Pauses a waiting job at once; a running one after its present step. Pausing a paused job changes nothing.

    Raises IllegalTransition for a finished job.
    """
    with job_tx(installation.db, job_id, owner) as job:
        note(job, "pause", actor)
        state = State(job.row["state"])
        if state is State.RUNNING:
            if not job.row["pause_requested"]:
                job.update({"pause_requested": True}, NewEvent("pause_requested", actor))
        elif state is not State.PAUSED:
            values = {
                "resume_state": state,
                "reason": Reason.PAUSED_BY_USER,
                "reason_data": {"actor": actor},
                "available_at": job.row["available_at"],  # a schedule or backoff is kept for the resume
            }
            _move(job, Event.PAUSE, actor, values)
    return get_job(installation, job_id, owner)


def resume(installation: Installation, job_id: str, owner: str | None, actor: str, budget: Budget) -> JobView:
    """Lets a paused job go on with what it waited for, with a raised budget where one is given.

    Takes back a pause that a running job has not carried out yet. Raises IllegalTransition for any other state.
    """
    limits = budget.given()
    inherits = False
    with job_tx(installation.db, job_id, owner) as job:
        note(job, "resume", actor, **limits)
        state = State(job.row["state"])
        if state is State.RUNNING and (job.row["pause_requested"] or limits):
            what = "pause_withdrawn" if job.row["pause_requested"] else "budget_raised"
            job.update({"pause_requested": False, **limits}, NewEvent(what, actor, data=limits or None))
        elif state is State.PAUSED:
            waited_for = State(job.row["resume_state"] or State.QUEUED)
            inherits = waited_for is State.INHERITING
            event = RESUME_EVENTS[waited_for]
            _move(job, event, actor, after_resume(job, waited_for) | {"resume_state": None, **limits})
        else:
            raise IllegalTransition(job_id, state, Event.RESUME, hint="only a paused job can be resumed")
    if inherits:
        go_on_if_ready(installation, job_id)
    return _woken(installation, job_id, owner)


def cancel(installation: Installation, job_id: str, owner: str | None, actor: str) -> JobView:
    """Ends a job: at once where no run holds it, else its worker aborts the model call and kills its tools.

    Its subtasks are cancelled next, one by one; where this process dies in between, the sweep goes on with them.
    Cancelling a cancelled job changes nothing. Raises IllegalTransition for a job that ended otherwise.
    """
    with job_tx(installation.db, job_id, owner) as job:
        note(job, "cancel", actor)
        state = State(job.row["state"])
        has_children = job.row["children_open"] > 0
        cascades = job.row["cascade_pending"] or (has_children and state is not State.CANCELLED)
        if state is State.RUNNING:
            if not job.row["cancel_requested"]:
                values = {"cancel_requested": True, "cascade_pending": has_children}
                job.update(values, NewEvent("cancel_requested", actor))
        elif state is not State.CANCELLED:
            _move(
                job,
                Event.CANCEL,
                actor,
                {"reason": Reason.CANCELLED_BY_USER, "reason_data": {"actor": actor}},
            )
    if job.woken_parent is not None:
        installation.wakeups.send_and_wait(AGENT_QUEUE, job.woken_parent)
    if job.owes_summary:
        installation.wakeups.send(SUMMARY, job_id)
    if cascades:
        cancel_children(installation, job_id, actor)
    return get_job(installation, job_id, owner)


def cancel_children(installation: Installation, job_id: str, actor: str) -> None:
    """Cancels the unfinished children of a job that is cancelled or about to be, and theirs.

    One transaction each. The job keeps its mark, by which the sweep finds it, until all of them were reached.
    """
    for child in unfinished_children(installation.db, job_id):
        with contextlib.suppress(IllegalTransition, JobNotFound):  # it ended by itself meanwhile, or is gone
            cancel(installation, child, None, actor)
    end_cascade(installation.db, job_id)


def retry(
    installation: Installation, job_id: str, owner: str | None, actor: str, model: str | None
) -> JobView:
    """Continues a failed, aborted or cancelled job from its last checkpoint, with another model where one is given.

    Its subtasks stay as they are, and its own parent has one more to wait for, whatever the parent does by then. A final
    summary that is being written is given up; jobs that wait for it go on with the last messages.
    Raises IllegalTransition for other states; a succeeded job is followed up by a new one.
    """
    hint = "only a failed, aborted or cancelled job can be retried; follow up a succeeded one with a new job"
    with job_tx(installation.db, job_id, owner) as job:
        note(job, "retry", actor, model=model)
        values: dict[str, Any] = {
            "reason": Reason.RETRIED,
            "completed_at": None,
            "error_message": None,
            "result": None,
            "attempt": 0,
            "model_failures": 0,
            "context_marks": _context_tried_again(job.row["context_marks"]),
            "cascade_pending": False,
        }
        if model is not None:
            values["model"] = model
        _move(job, Event.RETRY, actor, values, hint=hint)
    let_followers_go_on(installation, job_id)
    return _woken(installation, job_id, owner)


def _context_tried_again(marks: dict[str, Any] | None) -> dict[str, Any] | None:
    """A context that was given up as full may be made smaller again: with other settings, or another model."""
    given_up = ("useless", "useless_at", "overflowed", "asked_to_wrap_up")
    return {name: value for name, value in (marks or {}).items() if name not in given_up} or None


def after_resume(job: LockedJob, waited_for: State) -> dict[str, Any]:
    """Reason and due time of a paused job that goes back to what it waited for."""
    due: float = job.row["available_at"]
    if (
        waited_for is State.QUEUED and due > job.row["updated_at"]
    ):  # not due yet: it goes on waiting for its time
        return {"reason": Reason.SCHEDULED, "reason_data": {"until": due}, "available_at": due}
    if waited_for is State.INHERITING:
        data = {
            "predecessor": job.row["inherits_from"],
            "until": job.row["created_at"] + LONGEST_WAIT,
        }
        return {"reason": Reason.INHERITING, "reason_data": data, "available_at": due}
    if waited_for is State.WAITING_HUMAN:
        return {"reason": Reason.QUESTION, "reason_data": question_reason(job.row["pending_question"])}
    return {"reason": Reason.SUBTASKS if waited_for is State.WAITING_SUBTASKS else Reason.RESUMED}


def _move(job: LockedJob, event: Event, actor: str, values: dict[str, Any], hint: str | None = None) -> None:
    state = State(job.row["state"])
    end = target(state, event)
    if end is None:
        raise IllegalTransition(job.row["id"], state, event, hint=hint)
    if job.row["run_id"] is not None:  # a compaction's run: it finds its job gone and stops
        job.end_run(event)
    changes: dict[str, Any] = {
        "state": end,
        "reason_data": None,
        "run_id": None,
        "held_for": "",
        "available_at": wall_clock(),
    } | values
    if end in QUEUE_OF_STATE:
        changes["woken_at"] = wall_clock()
    if end in TERMINAL:
        changes |= {"completed_at": wall_clock(), "pause_requested": False, "cancel_requested": False}
        # Nobody waits for an answer any more; after a retry the agent asks again.
        changes |= {
            "resume_state": None,
            "pending_call": None,
            "pending_question": None,
            "answer_due_at": None,
        }
    job.update(changes, NewEvent(event, actor, state, end))


def _woken(installation: Installation, job_id: str, owner: str | None) -> JobView:
    view = get_job(installation, job_id, owner)
    queue = QUEUE_OF_STATE.get(State(view.state))
    if queue is not None:
        installation.wakeups.send_and_wait(queue, job_id)
    return view
