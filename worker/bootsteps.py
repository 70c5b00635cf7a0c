"""Celery mends: a thread that ends wakes the worker's event loop.

Without prefetch, Celery asks the broker for another message only when its event loop turns, and nothing turns it when
a pool thread becomes free: a freed slot would wait up to a second for the loop's next poll.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future
from typing import Any

from celery import bootsteps

_writers: list[int] = []  # the pipe of this process's event loop, once there is one


def wake_event_loop() -> None:
    """Lets the event loop turn now. Takes no lock: a signal handler may call it."""
    for writer in _writers:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the loop as well
            os.write(writer, b"\0")


class HubWakeUp(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Writes a byte into a pipe that the event loop watches whenever a task's future is done."""

    requires = ("celery.worker.components:Hub", "celery.worker.components:Pool")

    def __init__(self, _worker: Any, **_: Any) -> None:
        self._reader: int | None = None

    def start(self, worker: Any) -> None:
        if worker.hub is None:  # brokers without an event loop are polled anyway
            return
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        _writers.append(writer)
        worker.hub.add_reader(self._reader, self._drain, self._reader)
        executor = worker.pool.executor
        submit = executor.submit

        def submit_and_wake(*args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = submit(*args, **kwargs)
            future.add_done_callback(lambda _: wake_event_loop())
            return future

        executor.submit = submit_and_wake

    def stop(self, worker: Any) -> None:
        if self._reader is not None:
            worker.hub.remove(self._reader)  # both ends stay open: a future may still write
            self._reader = None

    @staticmethod
    def _drain(reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(reader, 4096):
                pass
