"""Inheritance: a new job begins with what an earlier one on the same thing left.

Found at submit, told to the agent by a comment, and waited for while the earlier job's final summary is being written:
no longer than `LONGEST_WAIT`, then its last messages serve instead. What the agent reads is made when it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from jobs.errors import PredecessorNotFound, UsageError
from jobs.installation import Installation
from jobs.language import is_japanese
from jobs.reasons import Reason
from jobs.states import Event, State
from jobs.wakeups import AGENT_QUEUE
from storage import inheritance as store
from storage.engine import wall_clock
from storage.errors import JobNotFound
from storage.final_summaries import DONE, PENDING
from storage.jobs import job_tx
from storage.records import NewEvent

LONGEST_WAIT = 120.0  # seconds from its submission that a job waits for a summary


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a new job's rows say of the one that it follows. `waits`: its summary is still to be written."""

    predecessor: str
    waits: bool
    until: float  # the end of that wait
    events: tuple[NewEvent, ...]
    note: str

    def columns(self) -> dict[str, Any]:
        """The columns of the new job that it changes. A later due time is kept: it holds after the wait."""
        columns: dict[str, Any] = {"inherits_from": self.predecessor}
        if self.waits:
            data = {"predecessor": self.predecessor, "until": self.until}
            columns |= {"state": State.INHERITING, "reason": Reason.INHERITING, "reason_data": data}
        return columns


def find_inheritance(
    installation: Installation, owner: str, key: dict[str, str | None], named: str | None, instruction: str
) -> Inheritance | None:
    """What a job of this owner inherits: from the one that is `named`, else from the newest with the same key.

    None where there is none. Raises PredecessorNotFound for a named job that is not the owner's or has not ended,
    UsageError where one is named and inheritance is turned off.
    """
    if not installation.settings.context.inheritance.enabled:
        if named is not None:
            raise UsageError(
                "inheritance is turned off in this installation",
                hint="leave the named job out, or set context.inheritance.enabled",
            )
        return None
    if named is None:
        found = store.newest_predecessor(installation.db, owner, key)
        if found is None:
            return None
    elif (found := store.ended_job(installation.db, owner, named)) is None:
        raise PredecessorNotFound(named)
    return _inheritance(installation, found, instruction, how="thread" if named is None else "named")


def _inheritance(
    installation: Installation, before: Mapping[str, Any], instruction: str, how: str
) -> Inheritance:
    waits = before["summary_state"] == PENDING
    data = {"predecessor": before["id"], "state": before["state"], "found": how}
    event = (
        NewEvent("inheriting", "submit", data=data)
        if waits
        else NewEvent(Event.INHERITED, "submit", data=data | {"from": source_of(before)})
    )
    note = notification(before, installation.settings.zone(), japanese=is_japanese(instruction))
    until = installation.db.clock() + LONGEST_WAIT
    return Inheritance(before["id"], waits, until, (event,), note)


def source_of(before: Mapping[str, Any] | None) -> str:
    """What of a predecessor a job that begins now would read."""
    if before is None:
        return "nothing"
    return "summary" if before["summary_state"] == DONE else "last_messages"


def notification(before: Mapping[str, Any], zone: tzinfo, *, japanese: bool) -> str:
    """The system's comment that names the predecessor, its state and when it was completed."""
    ended = datetime.fromtimestamp(before["completed_at"], zone).isoformat(timespec="seconds")
    if japanese:
        return (
            f"このジョブはジョブ {before['id']} を引き継ぎます(状態: {before['state']}、完了日時: {ended})。"
        )
    return f"This job continues from job {before['id']}: {before['state']}, completed at {ended}."


def let_followers_go_on(installation: Installation, job_id: str) -> None:
    """Moves every job on that waits for this one's summary, which is there or will not come, and wakes them.

    One transaction each; where this process dies in between, the sweep goes on with them.
    """
    for follower in store.followers_waiting_for(installation.db, job_id):
        if go_on_if_ready(installation, follower):
            installation.wakeups.send(AGENT_QUEUE, follower)


def go_on_if_ready(installation: Installation, follower: str, longest_wait: float | None = None) -> bool:
    """Ends the wait of a job whose predecessor's summary is no longer pending, or whose time is up.

    True: it is due now, its wake-up to be sent. False where it goes on waiting, has a later due time, waits no more, or
    is gone.
    """
    with suppress(JobNotFound), job_tx(installation.db, follower) as job:
        row = job.row
        if row["state"] != State.INHERITING:
            return False
        before = store.row_in(job.conn, row["inherits_from"])
        now: float = row["updated_at"]  # the clock of the lock just taken
        late = now >= row["created_at"] + (LONGEST_WAIT if longest_wait is None else longest_wait)
        if before is not None and before["summary_state"] == PENDING and not late:
            return False
        values: dict[str, Any] = {"state": State.QUEUED, "reason": Reason.NEW, "reason_data": None}
        later = row["available_at"] > now
        if later:
            values |= {"reason": Reason.SCHEDULED, "reason_data": {"until": row["available_at"]}}
        else:
            values |= {"available_at": wall_clock(), "woken_at": wall_clock()}
        data = {"predecessor": row["inherits_from"], "from": source_of(before)}
        job.update(values, NewEvent(Event.INHERITED, "inheritance", State.INHERITING, State.QUEUED, data))
        return not later
    return False
