"""Places for worker processes: whatever dies in one is started again, as a supervisor would do it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.crash.bench import is_stopped
from tests.servers.workers import CommandProcess

STOP_PATIENCE = 30.0  # for a worker that was told to stop; then it is killed
WATCH_SECONDS = 0.25


class Slot:
    """One place. Blows that hit it come one after the other, and each leaves a running worker behind.

    `launch(crash_point)` starts a worker, armed where the crash point is not empty.
    """

    def __init__(self, number: int, launch: Callable[[str], CommandProcess], zombie_seconds: float) -> None:
        self.number = number
        self.counts: Counter[str] = Counter()
        self.died: dict[int, float] = {}  # pid → when it was killed, or seen to be dead
        self.frozen: set[int] = set()  # pids that were stopped for a while: zombies, perhaps
        self._launch = launch
        self._zombie_seconds = zombie_seconds
        self._lock = threading.Lock()
        self._armed = ""
        self._process: CommandProcess | None = None
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"slot-{number}", daemon=True)

    def start(self) -> None:
        self._process = self._launch("")
        self._keeper.start()

    @property
    def process(self) -> CommandProcess:
        assert self._process is not None, "the slot was never started"
        return self._process

    def kill(self, seconds: float) -> None:
        """SIGKILL to the whole tree; another one starts after so many seconds."""
        with self._lock:
            self.counts["kill"] += 1
            self._end_by_kill()
            self._over.wait(seconds)
            self._restart()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        with self._lock:
            self.counts["freeze"] += 1
            self.frozen.add(self.process.pid)
            self.process.stop()
            self._over.wait(seconds)
            self.process.cont()

    def term(self, seconds: float) -> None:
        """SIGTERM, as a deploy sends it; the next one starts so many seconds after its end."""
        with self._lock:
            self.counts["term"] += 1
            self._end_in_order()
            self._over.wait(seconds)
            self._restart()

    def arm(self, crash_point: str) -> None:
        """Replaces the worker by one that dies, or stops, at a crash point, if it ever comes by there."""
        with self._lock:
            self._end_in_order()
            self._restart(crash_point)

    def calm(self) -> None:
        """From now on nothing dies here any more: an armed worker is replaced."""
        with self._lock:
            if self._armed:
                self._wake_if_stopped()
                self._end_in_order()
                self._restart()

    def end(self) -> None:
        """No worker is left, and none is started again."""
        self._over.set()
        self._keeper.join()
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _restart(self, crash_point: str = "") -> None:
        if not self._over.is_set():
            self.counts["restart"] += 1
            self._armed = crash_point
            self._process = self._launch(crash_point)

    def _end_by_kill(self) -> None:
        self.died[self.process.pid] = time.time()
        self.process.kill()

    def _end_in_order(self) -> None:
        pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            self.process.term()
        self.died[pid] = time.time()
        try:
            self.process.wait(STOP_PATIENCE)
        except Exception:  # noqa: BLE001 - subprocess.TimeoutExpired: it hangs, which is told in the table
            self.counts["hung"] += 1
            self._end_by_kill()

    def _keep(self) -> None:
        """Starts again what died by itself, and wakes what stopped itself, once its lease is over."""
        stopped_at: float | None = None
        while not self._over.wait(WATCH_SECONDS):
            if not self._lock.acquire(blocking=False):
                stopped_at = None
                continue
            try:
                if self.process.returncode is not None:
                    own = self.process.returncode == -signal.SIGKILL and self._armed
                    self.counts["crash" if own else "exit"] += 1
                    self.died[self.process.pid] = time.time()
                    self.process.kill()
                    self._restart()
                elif not is_stopped(self.process.pid):
                    stopped_at = None
                elif stopped_at is None:
                    stopped_at = time.monotonic()
                    self.frozen.add(self.process.pid)
                    self.counts["freeze"] += 1
                elif time.monotonic() - stopped_at > self._zombie_seconds:
                    self._wake_if_stopped()
            finally:
                self._lock.release()

    def _wake_if_stopped(self) -> None:
        if self.process.returncode is None and is_stopped(self.process.pid):
            self.frozen.add(self.process.pid)
            self.process.cont()
