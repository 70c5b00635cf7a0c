"""Keeping leases alive, and hearing what people want of running jobs: three threads of a worker process.

Two of them touch the database, through short statements of their own, so that a long tool, a slow model or 50
busy threads cannot make a live run lose its lease. The third one touches nothing: a database that is frozen holds the
other two for as long as it likes, and the runs must stop all the same.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from storage import registry
from storage.errors import LeaseLost, StorageError
from storage.runs import find_run, read_wishes, renew_leases
from worker.endings import give_back
from worker.live import LiveRun
from worker.process import WorkerProcess

log = logging.getLogger(__name__)

CONTROL_SECONDS = 0.5
SURE_FRACTION = 2 / 3  # of a lease without a renewal: the runs stop before another worker may begin


class Heartbeat(threading.Thread):
    """Renews the leases of all runs of the process, every fifth of a lease, in one statement."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._process = process
        self._lease = process.settings.lease_seconds
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(self._lease / 5):
            try:
                self.beat()
            except StorageError as error:
                log.warning("cannot renew leases: %s", error)
            except Exception:
                log.exception("heartbeat failed")

    def beat(self) -> None:
        """Renews once, stops runs that are no longer ours, and gives back what an outage left behind."""
        runs = self._process.live.all()
        began = time.monotonic()
        if runs:
            held = renew_leases(self._process.db, [run.ref.run_id for run in runs], self._lease)
            for run in runs:
                if run.ref.run_id in held:
                    run.renewed_at = began
                else:
                    run.cancel.cancel("lease_lost")
        if registry.worker_seen(self._process.db, self._process.name):
            self._process.draining.set()
        self._process.measures.flush(self._process.db)
        left = self._process.take_given_back()
        try:
            while left:
                self._give_back(left[-1])
                left.pop()
        finally:
            for run_id in left:  # the database failed again: all of them, not only the one that met it
                self._process.give_back_later(run_id)

    def _give_back(self, run_id: str) -> None:
        ref = find_run(self._process.db, run_id)
        if ref is None:  # its claim was never committed
            return
        with contextlib.suppress(LeaseLost):
            for job_id, queue in give_back(self._process.db, ref, self._process.name):
                self._process.wake(job_id, queue)


class LeaseWatch(threading.Thread):
    """Stops the runs whose lease was not renewed for two thirds of its length. Never touches the database."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="lease-watch", daemon=True)
        self._process = process
        self._lease = process.settings.lease_seconds
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(self._lease / 10):
            self.look()

    def look(self) -> None:
        """Stops unsure runs once; they give their jobs back when the database answers."""
        for run in self._process.live.all():
            if time.monotonic() - run.renewed_at > self._lease * SURE_FRACTION and run.cancel.reason is None:
                log.warning("run %s stops: its lease could not be renewed in time", run.ref.run_id)
                run.cancel.cancel("lease_lost")


class Control(threading.Thread):
    """Reads pause and cancel requests of all runs of the process, who watches, and the endpoints in cooldown."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="control", daemon=True)
        self._process = process
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(CONTROL_SECONDS):
            try:
                self.look()
            except StorageError:
                pass  # the heartbeat reports it, and acts when it lasts
            except Exception:
                log.exception("reading requests failed")

    def look(self) -> None:
        """One look at what people asked for, and at the cooldowns: also while idle, for the next run's first call."""
        runs = {run.ref.run_id: run for run in self._process.live.all()}
        if runs:
            self._tell(runs)
        now = time.monotonic()
        cooldowns = registry.active_cooldowns(self._process.db)
        self._process.cooldowns = {endpoint: now + left for endpoint, left in cooldowns.items()}

    def _tell(self, runs: dict[str, LiveRun]) -> None:
        wished = read_wishes(self._process.db, list(runs))
        for run_id in runs.keys() - wished.keys():  # as when a person cancels or pauses a compressing job
            runs[run_id].cancel.cancel("lease_lost")
        for run_id, wishes in wished.items():
            runs[run_id].pause = wishes.pause
            runs[run_id].watched = wishes.watched
            if wishes.cancel:
                runs[run_id].cancel.cancel("cancel")
