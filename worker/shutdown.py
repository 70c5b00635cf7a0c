"""Stopping a worker process in order: steps end within the grace time, then their runs are given back.

Celery's threads pool knows no forced shutdown, and a signal handler may take no lock: so the handler only sets a
flag, and a watchdog thread does the rest.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from storage import registry
from storage.errors import LeaseLost, StorageError
from worker.endings import give_back
from worker.process import WorkerProcess

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0  # for cancelled model calls and tools to end
EXIT_SECONDS = 5.0  # for Celery to leave once the runs are gone
LAST_SECONDS = 1.0  # for the last acts of a process that does not leave by itself
POLL_SECONDS = 0.1


class Shutdown(threading.Thread):
    """The watchdog of one process. `request` may be called from a signal handler."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="shutdown", daemon=True)
        self._process = process
        self._requests = 0

    def request(self) -> None:
        """Begins the shutdown; a second call ends the grace time. Takes no lock."""
        self._requests += 1
        self._process.stopping.set()

    def run(self) -> None:
        process = self._process
        process.stopping.wait()
        grace = process.settings.grace_seconds
        if process.claiming.acquire(
            timeout=grace
        ):  # a claim that had begun is now a live run; no other begins
            process.claiming.release()
        log.info("stopping: %d runs have %g s to end their step", len(process.live.all()), grace)
        waited = 0.0
        while waited < grace and self._requests < 2 and not process.live.wait_until_idle(POLL_SECONDS):
            waited += POLL_SECONDS
        for run in process.live.all():
            run.cancel.cancel("shutdown")
        if not process.live.wait_until_idle(STOP_SECONDS):
            _within(EXIT_SECONDS, self._give_back_the_rest)
        process.closed.wait(EXIT_SECONDS)
        if not process.closed.is_set():
            log.warning("the worker did not leave by itself: exiting")
            _within(LAST_SECONDS, lambda: finish(process))
            os._exit(0)

    def _give_back_the_rest(self) -> None:
        """Runs whose thread does not come back: their jobs need not wait for the lease's end."""
        for run in self._process.live.all():
            try:
                due = give_back(self._process.db, run.ref, self._process.name)
            except (LeaseLost, StorageError) as error:
                log.warning("run %s could not be given back: %s", run.ref.run_id, error)
            else:
                for job_id, queue in due:
                    self._process.wake(job_id, queue)


class Drain(threading.Thread):
    """Waits to be asked to leave; then for the process to have no run, however long a step takes; then stops it."""

    def __init__(
        self, process: WorkerProcess, stop_reading: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        super().__init__(name="drain", daemon=True)
        self._process = process
        self._stop_reading = stop_reading
        self._stop = stop

    def run(self) -> None:
        process = self._process
        process.draining.wait()
        self._stop_reading()
        with process.claiming:  # a claim that had begun is now a live run; no other begins
            runs = process.live.all()
        log.info("draining: no more jobs are taken; %d runs end at their next step", len(runs))
        while not process.stopping.is_set():
            if process.live.wait_until_idle(POLL_SECONDS):
                log.info("drained: no run is left")
                self._stop()
                return


def _within(seconds: float, act: Callable[[], None]) -> None:
    """Does it in a thread that is left behind after `seconds`: a frozen database must not keep the process alive."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)


def finish(process: WorkerProcess) -> None:
    """The last acts of a process: its wake-ups are out, its entry says that it stopped."""
    process.wakeups.close()
    try:
        process.measures.flush(process.db, at_once=True)
        registry.worker_seen(process.db, process.name, stopped=True)
    except StorageError as error:
        log.warning("could not note the end of this worker: %s", error)


def install_signal_handlers(shutdown: Shutdown, stop_consuming: Callable[[], None]) -> None:
    """SIGTERM and SIGINT: the first stops in order, the second at once. Replaces Celery's handlers."""

    def handle(_signum: int, _frame: FrameType | None) -> None:
        shutdown.request()
        stop_consuming()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, handle)
