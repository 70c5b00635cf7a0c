"""`sostenuto export --move`: a job goes on elsewhere, and not here.

First it is paused here, and marked: from then on no worker of this installation runs it. Then its archive is written and
is on the disk. Then it is closed here. Whatever dies in between, it runs nowhere until somebody imports the archive, or
resumes it here; the same command again finishes what was begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from jobs.archive.exporting import Archive, Exported
from jobs.audit import note
from jobs.errors import IllegalTransition, SostenutoError, UsageError
from jobs.installation import Installation
from jobs.lifecycle import after_resume, pause
from jobs.reasons import Reason
from jobs.states import TERMINAL, Event, State
from jobs.views import get_job
from storage import jobs as store
from storage.archive.rows import moving_data
from storage.engine import wall_clock
from storage.jobs import LockedJob, job_tx
from storage.records import NewEvent

_LOOK_AGAIN = 0.2


def move_jobs(
    installation: Installation,
    archive: Archive,
    job_ids: Sequence[str],
    *,
    actor: str,
    wait_seconds: float,
    told: Callable[[Exported], None],
) -> None:
    """Moves these jobs, with all their subtasks among them, into the archive. Ended ones are only exported.

    Raises UsageError for a subtask whose parent stays here, SostenutoError where a running one did not pause in time:
    then all of them are still here, some of them paused as being moved.
    """
    _check_families(installation, job_ids)
    for job_id in job_ids:
        hold(installation, job_id, actor, wait_seconds)
    for exported in archive.add(job_ids):
        told(exported)
    for job_id in reversed(job_ids):  # subtasks before their parents, which then have none left to cancel
        close(installation, job_id, actor)


def _check_families(installation: Installation, job_ids: Sequence[str]) -> None:
    moving = set(job_ids)
    for job_id in job_ids:
        parent = get_job(installation, job_id, None).parent_id
        if parent is not None and parent not in moving:
            above = get_job(installation, parent, None)
            if State(above.state) not in TERMINAL:
                raise UsageError(
                    f"job {job_id} is a subtask of {parent}, which would wait for it",
                    hint=f"move {parent} with it",
                )


def hold(installation: Installation, job_id: str, actor: str, wait_seconds: float) -> None:
    """Pauses a job that has not ended, and marks it as being moved. Waits for a running one's present step."""
    before = store.get_job(installation.db, job_id)
    if State(before["state"]) in TERMINAL:
        return
    asked = State(before["state"]) is State.RUNNING and not before["pause_requested"]
    end = time.monotonic() + wait_seconds
    while not _mark(installation, job_id, actor, asked=asked):
        if State(pause(installation, job_id, None, actor).state) is State.RUNNING:
            if time.monotonic() >= end:
                raise SostenutoError(
                    f"job {job_id} did not pause within {wait_seconds:.0f} s: its present step goes on",
                    hint="give it more time with --wait, then repeat the command",
                )
            time.sleep(_LOOK_AGAIN)


def _mark(installation: Installation, job_id: str, actor: str, *, asked: bool) -> bool:
    """Whether no run holds the job any more, so that nothing here changes it. `asked`: it was paused for the move."""
    with job_tx(installation.db, job_id) as job:
        row = job.row
        state = State(row["state"])
        if state in TERMINAL or (state is State.PAUSED and row["reason"] == Reason.MOVING):
            return True
        if state is State.RUNNING or row["run_id"] is not None:
            return False
        was = moving_data(row)
        if asked and row["reason"] == Reason.PAUSED_BY_USER:
            was |= _unless_paused(job)
        values = {"reason": Reason.MOVING}
        if state is State.PAUSED:
            job.update({**values, "reason_data": was}, NewEvent("moving", actor))
            return True
        was["waits_for"] = state
        held = {**values, "state": State.PAUSED, "resume_state": state, "reason_data": was}
        job.update(held, NewEvent(Event.PAUSE, actor, state, State.PAUSED))
        return True


def _unless_paused(job: LockedJob) -> dict[str, Any]:
    """What it would be now, had it not been paused for the move."""
    state = State(job.row["resume_state"] or State.QUEUED)
    values = after_resume(job, state)
    reason = {"reason": values["reason"], "reason_data": values.get("reason_data")}
    return {"state": state, "resume_state": None, **reason}


def close(installation: Installation, job_id: str, actor: str) -> None:
    """Ends a job that is being moved, here. One that a person resumed meanwhile goes on here, and is told as an error."""
    with job_tx(installation.db, job_id) as job:
        row = job.row
        if State(row["state"]) in TERMINAL:
            return
        if row["state"] != State.PAUSED or row["reason"] != Reason.MOVING:
            raise IllegalTransition(
                job_id,
                row["state"],
                "move",
                hint="it was resumed meanwhile: it goes on here, and its archive must not be imported",
            )
        note(job, "move", actor)
        values = {
            "state": State.CANCELLED, "reason": Reason.MOVED, "reason_data": None, "completed_at": wall_clock(),
            "resume_state": None, "pending_call": None, "pending_question": None, "answer_due_at": None,
            "summary_state": "none",
        }  # fmt: skip
        job.update(
            values, NewEvent(Event.CANCEL, actor, State.PAUSED, State.CANCELLED, {"reason": Reason.MOVED})
        )
