"""One action on many jobs: each in its own transaction, each with its own result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jobs import lifecycle
from jobs.errors import SostenutoError, StorageError
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.views import JobView

MOST_JOBS = 100
LONGEST_SECONDS = 20.0  # a broker that does not answer costs a second for each job that is to be woken


class Action(StrEnum):
    """What can be done to many."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job: its new state, or why nothing was done. `code` is the error's name."""

    job_id: str
    state: str | None = None
    code: str | None = None
    detail: str | None = None


def act_on_all(
    installation: Installation, action: Action, job_ids: Sequence[str], owner: str | None, actor: str
) -> list[Outcome]:
    """Does it to one after the other; what is not possible for one does not keep it from the next.

    A job of another owner is not found. When the time is up, or the database is away, the rest is `NotTried`, to be
    asked for again: repeating an action does it no second time.
    """
    deadline = time.monotonic() + LONGEST_SECONDS
    act = _acting(installation, action, owner, actor)
    outcomes: list[Outcome] = []
    stopped = False
    for job_id in job_ids:
        stopped = stopped or time.monotonic() > deadline
        if stopped:
            outcomes.append(Outcome(job_id, code="NotTried", detail="there was no time left: ask again"))
            continue
        try:
            outcomes.append(Outcome(job_id, state=act(job_id).state))
        except SostenutoError as error:
            stopped = isinstance(error, StorageError)
            outcomes.append(Outcome(job_id, code=type(error).__name__, detail=str(error)))
    return outcomes


def _acting(
    installation: Installation, action: Action, owner: str | None, actor: str
) -> Callable[[str], JobView]:
    if action is Action.PAUSE:
        return lambda job_id: lifecycle.pause(installation, job_id, owner, actor)
    if action is Action.RESUME:
        return lambda job_id: lifecycle.resume(installation, job_id, owner, actor, Budget())
    if action is Action.CANCEL:
        return lambda job_id: lifecycle.cancel(installation, job_id, owner, actor)
    return lambda job_id: lifecycle.retry(installation, job_id, owner, actor, None)
