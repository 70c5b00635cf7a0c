"""`python -m tests.resilience.saturated URL FOLDER PREFETCH`: a worker of two slots whose slices are short waits.

Prints "ready", and `rate=` with how many a second it did of them, from the first one's end to the last one's.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from jobs.installation import Installation
from jobs.settings import Settings
from storage.engine import Database
from worker import app as worker_app
from worker import tasks
from worker.process import WorkerProcess

TASKS = 40
SLICE_SECONDS = 0.1


def main() -> None:
    url, folder, prefetch = sys.argv[1:]
    settings = Settings(data_dir=Path(folder), broker_url=url, concurrency=2)
    process = WorkerProcess(
        Installation(settings, Database(settings.database_url)), "s@here", ["agent"], None
    )
    ends: list[float] = []
    lock = threading.Lock()

    def short_slice(_process: WorkerProcess, _hint: str | None) -> None:
        threading.Event().wait(SLICE_SECONDS)
        with lock:
            ends.append(time.monotonic())
            if len(ends) == TASKS:
                print(f"rate={(TASKS - 1) / (ends[-1] - ends[0])}", flush=True)

    tasks.run_slice = short_slice  # type: ignore[attr-defined, assignment]  # stands in for the slice
    make_app = worker_app.make_app

    def with_prefetch(of: WorkerProcess) -> object:
        made = make_app(of)
        made.conf.worker_send_task_events = False  # their answers turn the event loop too, as it happens
        if int(prefetch):
            made.conf.worker_disable_prefetch = False
            made.conf.worker_prefetch_multiplier = 4
        return made

    worker_app.make_app = with_prefetch  # type: ignore[assignment]  # one setting differs
    worker_app.consume(
        process, "error", on_ready=lambda: print("ready", flush=True), on_shutdown=lambda: None
    )


if __name__ == "__main__":
    main()
