"""Which of a job's models is asked, by its agent and for its summaries: the first that can be, and back to it when it
can be again.

A model whose endpoint is down, busy for long, without credit or without a right to it is set aside for a while, for
all jobs that have another one; a job without another waits or fails as it would. Bounded: an endpoint that fails
again after its pause is set aside for twice as long, and every switch after a failure counts as one of the job's
failures in a row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.pieces import Piece
from jobs.settings import Settings
from storage import registry
from storage.records import Checkpoint, Commit, NewEvent
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.scripted import PREFIX as SCRIPTED

if TYPE_CHECKING:
    from worker.job_run import JobRun
    from worker.process import WorkerProcess

MOST_FAILURES_BEFORE = 8  # as many failures in a row end the job, whichever models they were of
FAILURES_TO_LEAVE = 2  # in a row: one may be chance
LONG_WAIT = 15.0  # seconds: a shorter rate limit is waited out
ASIDE_SECONDS = 60.0
LONGEST_ASIDE = 900.0
ASIDE = " (set aside)"

_REFUSALS = (ModelErrorKind.AUTHENTICATION, ModelErrorKind.QUOTA, ModelErrorKind.CAPABILITY)
_PASSING = (ModelErrorKind.TRANSIENT, ModelErrorKind.INTERRUPTED)


def models_in(text: str) -> list[str]:
    """The models that a job's own choice names, in order: separated by commas. A script's path is one name."""
    if text.startswith(SCRIPTED):
        return [text]
    return [name.strip() for name in text.split(",") if name.strip()]


def candidates_of(settings: Settings, chosen: str | None, piece: Piece, movement: str) -> list[str]:
    """A job's models in order: the submitter's choice, else the movement's, else the piece's, else the installation's;
    then the fallbacks of the settings. A script has no other: what it says is the test, or the demo."""
    own = models_in(chosen or "") or list(piece.movement(movement).models or piece.models or ())
    own = own or ([settings.model] if settings.model else [])
    if not own or own[0].startswith(SCRIPTED):
        return own[:1]
    return list(dict.fromkeys([*own, *settings.fallback_models]))


def pick(process: WorkerProcess, candidates: list[str]) -> str:
    """The first that can be asked now, else the one that can be soonest."""
    return min(candidates, key=lambda model: (wait_for(process, model), candidates.index(model)))


def wait_for(process: WorkerProcess, model: str) -> float:
    """Seconds until the model can be asked; 0 where it can be now."""
    if not process.cooldowns:
        return 0.0
    key, now = process.endpoint(model), time.monotonic()
    ends = (process.cooldowns.get(key, 0.0), process.cooldowns.get(key + ASIDE, 0.0))
    return max(0.0, max(ends) - now)


def choose_model(job: JobRun) -> None:
    """Settles which model the coming step asks; a change within a movement is committed to the history first."""
    candidates = job.candidates
    if len(candidates) < 2:
        return
    before = job.model_in_use
    if before not in candidates:
        before = last_asked(job) or candidates[0]
    chosen = pick(job.process, candidates)
    if chosen != before and before in candidates:
        _commit_switch(job, before, chosen)
    job.model_in_use = chosen


def last_asked(job: JobRun) -> str | None:
    """The model of this visit's last reply."""
    for row in reversed(job.rows):
        if row.role == "assistant":
            extra = row.extra or {}
            said = extra.get("asked") or extra.get("model")
            return str(said) if said in job.candidates else None
    return None


def _commit_switch(job: JobRun, before: str, chosen: str) -> None:
    wait = wait_for(job.process, before)
    data = {"from": before, "to": chosen}
    if wait:
        data["why"] = job.process.aside_reasons.get(job.process.endpoint(before), "it is set aside")
    else:
        data["why"] = f"{chosen} can be asked again"
    event = NewEvent("model_switched", "worker", data=data)
    job.commit(Checkpoint(Commit.GAP, events=[event], values={"epoch": job.row["epoch"] + 1}))


def turn_to_another(job: JobRun, error: ModelError) -> bool:
    """True: the failed model is set aside and another one is to be asked. False: the failure is the job's to bear."""
    failures = job.row["model_failures"] + 1
    if failures >= MOST_FAILURES_BEFORE:
        return False
    if not set_aside(job.process, job.model_name, job.candidates, error, failures):
        return False
    if error.kind is not ModelErrorKind.RATE_LIMIT:
        job.commit(Checkpoint(Commit.GAP, values={"model_failures": failures}))
    return True


def set_aside(
    process: WorkerProcess, failed: str, candidates: Sequence[str], error: ModelError, failures: int
) -> bool:
    """Sets the failed model aside, for all jobs that have another; `failures` are those in a row, this one included.

    False: no other can be asked now, another would not help, or it is too early. Raises StorageError.
    """
    if not any(wait_for(process, model) == 0 for model in candidates if model != failed):
        return False
    seconds = _aside_seconds(process, failed, error, failures)
    if seconds is None:
        return False
    key = name = process.endpoint(failed)
    if error.kind is not ModelErrorKind.RATE_LIMIT:
        # A busy endpoint is so for everybody, and they know; the others only for jobs that can do without it.
        name = key + ASIDE
        registry.cool_down(process.db, name, seconds, str(error))
    process.cooldowns = {**process.cooldowns, name: time.monotonic() + seconds}
    process.aside_reasons[key] = str(error)
    return True


def _aside_seconds(process: WorkerProcess, model: str, error: ModelError, failures: int) -> float | None:
    """For how long the model is set aside; None where another would not help, or it is too early."""
    if error.own_limit:
        return None
    if error.kind is ModelErrorKind.RATE_LIMIT:
        wait = error.retry_after
        return wait if wait is not None and wait > LONG_WAIT else None
    unknown_model = error.kind is ModelErrorKind.BAD_REQUEST and error.status == 404
    down = error.kind in _PASSING and failures >= FAILURES_TO_LEAVE
    if not (error.kind in _REFUSALS or unknown_model or down):
        return None
    strikes = process.strikes.get(process.endpoint(model), 0)
    process.strikes[process.endpoint(model)] = strikes + 1
    return float(min(ASIDE_SECONDS * 2**strikes, LONGEST_ASIDE))


def model_answered(process: WorkerProcess, model: str) -> None:
    """Forgets earlier failures of a model that gave a reply."""
    if process.strikes:
        process.strikes.pop(process.endpoint(model), None)
