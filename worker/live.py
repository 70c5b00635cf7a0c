"""The runs that this process holds now, as the heartbeat, the sweep and the shutdown see them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from storage.records import RunRef
from worker.cancel import CancelToken
from worker.drafts import Draft


@dataclass(slots=True)
class LiveRun:
    """One run of this process. `pause` is read at step boundaries; `cancel` stops the model call and the tools."""

    ref: RunRef
    suspect: bool  # an earlier run of this job died: at most one such job at a time in a process
    renewed_at: float = field(
        default_factory=time.monotonic
    )  # its lease is surely ours for one lease from then
    cancel: CancelToken = field(default_factory=CancelToken)
    pause: bool = False
    watched: bool = False  # somebody looks at the job now
    draft: Draft | None = None  # the reply that its model is writing
    told: bool = False  # of the draft, since the last commit


class LiveRuns:
    """Thread-safe register of live runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, LiveRun] = {}
        self._idle = threading.Condition(self._lock)

    def add(self, run: LiveRun) -> None:
        with self._lock:
            self._runs[run.ref.run_id] = run

    def remove(self, run: LiveRun) -> None:
        with self._lock:
            self._runs.pop(run.ref.run_id, None)
            self._idle.notify_all()

    def all(self) -> list[LiveRun]:
        with self._lock:
            return list(self._runs.values())

    def has_suspect(self) -> bool:
        with self._lock:
            return any(run.suspect for run in self._runs.values())

    def wait_until_idle(self, timeout: float) -> bool:
        """True as soon as no run is held; False after `timeout` seconds."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._runs, timeout)
