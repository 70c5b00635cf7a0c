"""The sweep: finds runs whose lease ended and jobs whose wake-up was lost, and mends both.

A thread of every worker process, one at a time under a lease in the database; it is idempotent, so that two at once
would do no harm. It alone is enough to complete every job, whatever the broker loses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from jobs.comments import answer_by_default
from jobs.json_logs import logging_about
from jobs.lifecycle import cancel_children
from jobs.measures import LOST_LEASES
from jobs.reasons import Reason
from jobs.states import TERMINAL, Event, State, target
from jobs.wakeups import QUEUE_OF_STATE, SUMMARY
from storage import registry
from storage.audit import remove_old
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import wall_clock
from storage.errors import JobNotFound, StorageError
from storage.jobs import LockedJob, job_tx, overdue_questions
from storage.live import clear_live
from storage.records import NewEvent, RunRef
from storage.runs import count_live_runs, end_run_if_expired, expired_runs, take_unwoken_jobs
from storage.subtasks import cascades_pending
from worker.final_summary import sweep_followers, take_back_summary, wake_forgotten_summaries
from worker.process import WorkerProcess
from worker.slices import let_held_go

log = logging.getLogger(__name__)

LOCK = "sweep"
AT_ONCE = 100  # expired runs, and wake-ups of a queue, in one round
WAKE_AGAIN_SECONDS = 5.0
AUDIT_SECONDS = 3600.0
AUDIT_AT_ONCE = 1000


class _HeartbeatCameBack(Exception):
    """The run's lease is live again: nothing may be taken from it."""


class Sweep(threading.Thread):
    """Runs `sweep_once` every `sweep_seconds`, while this process holds the sweep's lease."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="sweep", daemon=True)
        self._process = process
        self._ended = threading.Event()
        self._calm = Calm(process.settings.lease_seconds, process.settings.sweep_seconds)
        self._clear_audit_at = time.monotonic()

    def stop(self) -> None:
        """Ends the thread after its present round, and frees the lease for another process."""
        self._ended.set()
        self.join(2.0)

    def run(self) -> None:
        settings = self._process.settings
        hold = max(settings.lease_seconds / 3, 2 * settings.sweep_seconds)
        while not self._ended.wait(settings.sweep_seconds):
            try:
                mine = registry.take_lock(self._process.db, LOCK, self._process.name, hold)
                self._calm.holds()  # also while another process sweeps: the silence before our turn is no disturbance
                if mine:
                    sweep_once(self._process, self._calm.holds)
                    self._clear_audit_log()
            except StorageError as error:
                log.warning("cannot sweep: %s", error)
                self._calm.disturb()
            except Exception:
                log.exception("the sweep failed")
        try:
            registry.drop_lock(self._process.db, LOCK, self._process.name)
        except StorageError:
            log.warning("the sweep's lease is left to run out")

    def _clear_audit_log(self) -> None:
        """Once an hour, and in the next round too where there is more: records stay for months."""
        if time.monotonic() >= self._clear_audit_at:
            removed = remove_old(
                self._process.db, self._process.settings.audit_days * 86_400.0, AUDIT_AT_ONCE
            )
            self._clear_audit_at = time.monotonic() + (AUDIT_SECONDS if removed < AUDIT_AT_ONCE else 0)


class Calm:
    """Whether an expired lease means a dead worker. For one lease it does not, after any of these:

    the wall clock ran away from the monotonic one, as after a laptop slept; the database failed or was frozen. All
    leases then look expired, though their workers are only about to renew them.
    """

    def __init__(
        self,
        lease_seconds: float,
        sweep_seconds: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease = lease_seconds
        self._longest_gap = sweep_seconds + lease_seconds / 2
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._asked_at = self._calm_from = monotonic()

    def disturb(self) -> None:
        """The database failed: workers may not have reached it either."""
        self._calm_from = self._monotonic() + self._lease

    def holds(self) -> bool:
        """Ask after each statement: a long time since the last answer is a frozen database, too."""
        now = self._monotonic()
        offset = self._wall() - now
        if abs(offset - self._offset) > self._lease / 2 or now - self._asked_at > self._longest_gap:
            self.disturb()
        self._offset = offset
        self._asked_at = now
        return now >= self._calm_from


def sweep_once(process: WorkerProcess, calm: Callable[[], bool] = lambda: True) -> None:
    """One round: requeues what dead runs held, cancels forgotten subtasks, answers questions whose time is over,
    lets jobs go that a limit held, has the calls of hooks made that nobody made, clears away what was told of replies that
    will not come, wakes due jobs that nobody was told of.
    """
    if calm():
        for run in expired_runs(process.db, AT_ONCE):
            if not calm():
                break
            with logging_about(job=run.job_id, run=run.run_id):
                take_back(process, run)
    let_held_go(process)
    for job_id in cascades_pending(process.db, AT_ONCE):
        cancel_children(process.installation, job_id, "a person")
    for job_id in overdue_questions(process.db, AT_ONCE):
        with suppress(JobNotFound):
            if answer_by_default(process.installation, job_id):
                process.wake(job_id)
    sweep_followers(process, AT_ONCE)
    process.hooks.wake()
    clear_live(process.db)
    wake_forgotten(process)


def wake_forgotten(process: WorkerProcess) -> None:
    """Sends wake-ups for due jobs that nobody was told of, as many as there are idle slots: more would only pile up."""
    workers = registry.live_workers(process.db, 2 * process.settings.lease_seconds, taking=True)
    for state, queue in QUEUE_OF_STATE.items():
        slots = sum(worker["concurrency"] for worker in workers if queue in worker["queues"])
        idle = slots - count_live_runs(process.db, queue)
        if idle > 0:
            for job_id in take_unwoken_jobs(process.db, state, WAKE_AGAIN_SECONDS, min(idle, AT_ONCE)):
                crash_point(CrashPoint.WAKE_COMMITTED)
                process.wakeups.send(queue, job_id)
    wake_forgotten_summaries(process, workers, WAKE_AGAIN_SECONDS, AT_ONCE)


def take_back(process: WorkerProcess, run: RunRef) -> None:
    """Ends one expired run and moves its job on, unless its heartbeat came back or it ended in the meantime."""
    parent, summary = None, False
    try:
        with job_tx(process.db, run.job_id) as job:
            worker = end_run_if_expired(job.conn, run)
            if worker is None:
                raise _HeartbeatCameBack
            if job.row["summary_run_id"] == run.run_id:
                take_back_summary(job)
                crash_point(CrashPoint.SWEEP_COMMITTING)
                log.warning("run %s died: it was to write the summary of job %s", run.run_id, run.job_id)
            if job.row["run_id"] == run.run_id:
                state = _move_on(process, job, worker)
                parent, summary = job.woken_parent, job.owes_summary
                crash_point(CrashPoint.SWEEP_COMMITTING)
                log.warning("run %s of job %s died: now %s", run.run_id, run.job_id, state)
    except (_HeartbeatCameBack, JobNotFound):
        return
    process.measures.count(LOST_LEASES)
    crash_point(CrashPoint.SWEEP_COMMITTED)
    if parent is not None:
        process.wake(parent)
    if summary:
        process.wakeups.send(SUMMARY, run.job_id)


def _move_on(process: WorkerProcess, job: LockedJob, worker: str) -> State:
    """What a dead run leaves: what people asked for meanwhile, an end after too many deaths, else another try."""
    state = State(job.row["state"])
    attempt = job.row["attempt"] + 1
    values: dict[str, object] = {"run_id": None, "attempt": attempt}
    data: dict[str, object]
    if job.row["cancel_requested"]:
        event, reason, data = Event.CANCEL, Reason.CANCELLED_BY_USER, {"actor": "a person"}
    elif attempt >= process.settings.max_attempts:
        event, reason, data = Event.FAIL, Reason.ATTEMPTS_EXHAUSTED, {"attempts": attempt}
        values["error_message"] = f"{reason}: its worker died {attempt} times in a row"
    elif job.row["pause_requested"] and state is State.RUNNING:
        event, reason, data = Event.PAUSE, Reason.PAUSED_BY_USER, {"actor": "a person"}
        values["resume_state"] = State.QUEUED
    else:
        event, reason, data = Event.LEASE_EXPIRED, Reason.WORKER_LOST, {"worker": worker}
    end = target(state, event)
    assert end is not None, f"{event} is not legal in {state}"
    values |= {"state": end, "reason": reason, "reason_data": data, "available_at": wall_clock()}
    if end in TERMINAL:
        values["completed_at"] = wall_clock()
    if end is not State.RUNNING:
        values |= {"pause_requested": False, "cancel_requested": False}
    job.update(values, NewEvent(event, "sweep", state, end, {"reason": reason, **data}))
    return end
