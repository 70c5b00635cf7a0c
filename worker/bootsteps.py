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
    """Writes a byte into a pipe that the event loop watches whenever a task's future is done.

    A step of the consumer, not of the worker: a lost connection resets the event loop, which then forgets its readers,
    and only the consumer's steps are started again with the next connection.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, _consumer: Any, **_: Any) -> None:
        self._reader: int | None = None

    def start(self, consumer: Any) -> None:
        if consumer.hub is None:  # brokers without an event loop are polled anyway
            return
        if self._reader is None:
            self._reader = self._make_pipe()
            _wake_when_done(consumer.pool.executor)
        consumer.hub.add_reader(self._reader, self._drain, self._reader)

    def stop(self, consumer: Any) -> None:
        if self._reader is not None:
            consumer.hub.remove(self._reader)  # both ends stay open: a future may still write

    @staticmethod
    def _make_pipe() -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        _writers.append(writer)
        return reader

    @staticmethod
    def _drain(reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(reader, 4096):
                pass


def _wake_when_done(executor: Any) -> None:
    submit = executor.submit

    def submit_and_wake(*args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = submit(*args, **kwargs)
        future.add_done_callback(lambda _: wake_event_loop())
        return future

    executor.submit = submit_and_wake
