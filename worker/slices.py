"""One slice: claim the best due job, work on it within bounds, give it back or end it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.json_logs import logging_about
from jobs.measures import COMPACTIONS, RECOVERIES, RUNS
from jobs.reasons import Reason
from jobs.states import LEASED, TERMINAL, Event, State
from jobs.wakeups import AGENT_QUEUE, SUMMARY
from storage.errors import LeaseLost, StorageError
from storage.limits import let_go
from storage.records import RunRef
from storage.runs import SUSPECT_ATTEMPTS, Claim, claim_best
from worker.agent import run_agent
from worker.cancel import Cancelled
from worker.endings import Ending, end, fail_run
from worker.job_run import JobRun
from worker.live import LiveRun
from worker.monitoring import sight
from worker.process import WorkerProcess
from worker.spans import run_span

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunKind:
    """What the runs of a queue do: which jobs they claim, as what, and the work itself."""

    queue: str
    source: State
    target: State
    reason: Reason | None  # shown while the run works
    work: Callable[[JobRun], Ending]


AGENT = RunKind(AGENT_QUEUE, State.QUEUED, State.RUNNING, None, run_agent)


def run_slice(process: WorkerProcess, hint: str | None, kind: RunKind = AGENT) -> str | None:
    """Answers one wake-up: runs the best due job, which need not be the hinted one, and returns its id.

    None when nothing was due, as after a doubled or late wake-up. Never raises: what goes wrong is on the job.
    """
    run_id = uuid.uuid4().hex
    try:
        claimed = _claim(process, run_id, hint, kind)
    except StorageError as error:
        log.warning("cannot claim a job: %s", error)  # the sweep sends the wake-up again
        process.give_back_later(run_id)  # the claim may have been committed all the same
        return None
    if claimed is None:
        return None
    live, row = claimed
    with logging_about(job=row["id"], run=live.ref.run_id), run_span(process, kind.queue, row, run_id):
        _run(process, live, row, kind)
    return live.ref.job_id


def _run(process: WorkerProcess, live: LiveRun, row: dict[str, Any], kind: RunKind) -> None:
    if row["attempt"]:
        process.measures.count(RECOVERIES)
    log.info("job %s: %s run %s begins at step %d", row["id"], kind.queue, live.ref.run_id, row["steps"])
    process.show(sight(kind.target, row))
    try:
        ending = _work(process, live, row, kind)
    finally:
        try:
            process.mcp.close_run(live.cancel)
        finally:
            process.live.remove(live)
    left = "given up: another run may have it" if ending is None else f"{ending.state} ({ending.reason})"
    process.show(sight(kind.target, row, left))
    if ending is not None:
        log.info("job %s: run %s ends: %s (%s)", row["id"], live.ref.run_id, ending.state, ending.reason)
        process.measures.count(RUNS, kind.queue, ending.state, ending.reason)
        if ending.reason in _COMPACTIONS:
            process.measures.count(COMPACTIONS, _COMPACTIONS[ending.reason])
    _wake_next(process, live, ending, kind)
    if kind is AGENT and process.limit_of is not None:
        let_held_go(process, row)
    if ending is not None and ending.state not in QUIET:
        process.hooks.wake()
    if ending is not None and ending.state in TERMINAL and process.db.final_summaries:
        process.wakeups.send(SUMMARY, live.ref.job_id)


_COMPACTIONS = {Reason.COMPACTED: "done", Reason.CONTEXT_KEPT: "discarded"}
QUIET = (State.QUEUED, *LEASED)  # states that no hook is told of


def let_held_go(process: WorkerProcess, ended: Mapping[str, Any] | None = None) -> None:
    """Lets jobs go that a limit held and that now has room, and wakes them; `ended`: made by this job's end alone.

    Where the database is away, or this process dies first, the sweep does it.
    """
    limit_of = process.limit_of or (lambda _kind, _value: None)
    try:
        for job_id in let_go(process.db, AGENT.source, AGENT.target, limit_of, ended):
            process.wake(job_id)
    except StorageError as error:
        log.warning("cannot let held jobs go: %s", error)


def _wake_next(process: WorkerProcess, live: LiveRun, ending: Ending | None, kind: RunKind) -> None:
    due = ending.queue if ending is not None else None
    if due is not None:
        process.wake(live.ref.job_id, due)
    if (
        live.suspect and due != kind.queue
    ):  # for the next suspect: it was passed over, and its own hint is spent
        process.wake(live.ref.job_id, kind.queue)


def _claim(
    process: WorkerProcess, run_id: str, hint: str | None, kind: RunKind
) -> tuple[LiveRun, dict[str, Any]] | None:
    with process.claiming:
        if process.leaving:
            if hint is not None:
                process.wake(hint, kind.queue)  # another worker's to hear: this message is gone
            return None
        began = time.monotonic()
        claim = Claim(
            run_id=run_id,
            worker=process.name,
            kind=kind.queue,
            source=kind.source,
            target=kind.target,
            event=Event.CLAIM,
            lease_seconds=process.settings.lease_seconds,
            allow_suspects=not process.live.has_suspect(),
            reason=kind.reason,
            limit_of=process.limit_of if kind is AGENT else None,
        )
        row = claim_best(process.db, claim, hint)
        if row is None:
            return None
        suspect = row["attempt"] >= SUSPECT_ATTEMPTS
        live = LiveRun(RunRef(run_id, row["id"]), suspect=suspect, renewed_at=began)
        process.live.add(live)
        return live, row


def _work(process: WorkerProcess, live: LiveRun, row: dict[str, Any], kind: RunKind) -> Ending | None:
    """Does the work; whatever stops it becomes an ending. None: the run may write nothing more."""
    job: JobRun | None = None
    try:
        try:
            job = JobRun(process, live, row)
            return kind.work(job)
        except Cancelled as stopped:
            assert job is not None  # loading a job cannot be cancelled
            return _end_stopped(job, stopped.reason)
        except (LeaseLost, StorageError):
            raise
        except Exception as error:
            log.exception("job %s failed inside Sostenuto", live.ref.job_id)
            detail = f"{type(error).__name__}: {error}"[:500]
            parent = fail_run(process.db, live.ref, kind.target, Reason.INTERNAL_ERROR, detail)
            if parent is not None:
                process.wake(parent)
    except LeaseLost as error:
        log.warning("%s", error)
    except StorageError as error:
        # The database may be back before the lease ends: then the job need not wait for the sweep.
        log.warning("job %s: %s", live.ref.job_id, error)
        process.give_back_later(live.ref.run_id)
    return None


def _end_stopped(job: JobRun, reason: str) -> Ending | None:
    if reason == "cancel":
        return end(job, Event.CANCEL, Reason.CANCELLED_BY_USER, {"actor": "a person"})
    if reason == "shutdown":
        return end(job, Event.REQUEUE, Reason.WORKER_STOPPED, {"worker": job.process.name})
    # lease_lost: by an outage, if it is still ours when the database is back
    job.process.give_back_later(job.ref.run_id)
    return None
