"""Keeping leases alive, and hearing what people want of running jobs: two threads of a worker process.

Both only ever touch the database through short statements of their own, so that a long tool, a slow model or 50
busy threads cannot make a live run lose its lease.
"""

from __future__ import annotations

import logging
import threading
import time

from storage import registry
from storage.errors import LeaseLost, StorageError
from storage.records import RunRef
from storage.runs import read_wishes, renew_leases
from worker.endings import give_back
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
        self._renewed_at = time.monotonic()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(self._lease / 5):
            try:
                self.beat()
            except StorageError as error:
                log.warning("cannot renew leases: %s", error)
                self._stop_unsure_runs()
            except Exception:
                log.exception("heartbeat failed")
                self._stop_unsure_runs()

    def beat(self) -> None:
        """Renews once, stops runs that are no longer ours, and gives back what an outage left behind."""
        runs = self._process.live.all()
        began = time.monotonic()
        if runs:
            held = renew_leases(self._process.db, [run.ref.run_id for run in runs], self._lease)
            for run in runs:
                if run.ref.run_id not in held:
                    run.cancel.cancel("lease_lost")
        registry.worker_seen(self._process.db, self._process.name)
        self._renewed_at = began
        for ref in self._process.take_given_back():
            self._give_back(ref)

    def _give_back(self, ref: RunRef) -> None:
        try:
            give_back(self._process.db, ref, self._process.name)
        except LeaseLost:
            return
        except StorageError:
            self._process.give_back_later(ref)
            raise
        self._process.wake(ref.job_id)

    def _stop_unsure_runs(self) -> None:
        if time.monotonic() - self._renewed_at > self._lease * SURE_FRACTION:
            for run in self._process.live.all():
                run.cancel.cancel("lease_lost")


class Control(threading.Thread):
    """Reads pause and cancel requests of all runs of the process, and the endpoints in cooldown."""

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
        """One look at what people asked for."""
        runs = {run.ref.run_id: run for run in self._process.live.all()}
        if not runs:
            return
        for run_id, wishes in read_wishes(self._process.db, list(runs)).items():
            runs[run_id].pause = wishes.pause
            if wishes.cancel:
                runs[run_id].cancel.cancel("cancel")
        now = time.monotonic()
        cooldowns = registry.active_cooldowns(self._process.db)
        self._process.cooldowns = {endpoint: now + left for endpoint, left in cooldowns.items()}
