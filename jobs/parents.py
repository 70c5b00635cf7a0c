"""A job's end as its parent hears of it: the same for every way to end, by a run, by the sweep, by a person."""

from __future__ import annotations

from jobs.reasons import Reason
from jobs.states import Event, State
from storage.jobs import LockedJob
from storage.parents import child_ended
from storage.records import ParentWake

PARENT_WAKE = ParentWake(
    event=Event.SUBTASKS_DONE,
    waiting=State.WAITING_SUBTASKS,
    paused=State.PAUSED,
    target=State.QUEUED,
    reason=Reason.SUBTASKS_DONE,
)


def tell_parent(job: LockedJob) -> str | None:
    """Counts the ended `job` down in its parent's row, within its own transaction. Once for each end.

    Returns the parent if it waited for this job alone: its wake-up is to be sent after the commit.
    """
    parent_id = job.row["parent_id"]
    return None if parent_id is None else child_ended(job.conn, parent_id, PARENT_WAKE)
