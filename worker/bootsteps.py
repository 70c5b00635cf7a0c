"""Celery mends: a thread that ends wakes the worker's event loop; and a way to send events from a task's thread.

Without prefetch, Celery asks the broker for another message only when its event loop turns, and nothing turns it when
a pool thread becomes free: a freed slot would wait up to a second for the loop's next poll.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from celery import bootsteps

_writers: list[int] = []  # the pipe of this process's event loop, once there is one
_dispatchers: list[Any] = []  # of the present connection to the broker
_consumers: list[Any] = []  # the same


def wake_event_loop() -> None:
    """Lets the event loop turn now. Takes no lock: a signal handler may call it."""
    for writer in _writers:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the loop as well
            os.write(writer, b"\0")


def stop_reading(queues: Sequence[str]) -> None:
    """Lets the event loop take no more messages from these queues, also after its next connection."""
    for consumer in _consumers:
        for queue in queues:
            consumer.call_soon(consumer.cancel_task_queue, queue)
    wake_event_loop()


def send_task_event(kind: str, task_id: str, **fields: object) -> None:
    """Tells monitors of a running task, through the worker's own sender: it buffers, as for Celery's own events.

    Nothing is promised: events are for looking, and are lost with the broker.
    """
    for dispatcher in _dispatchers:
        dispatcher.send(f"task-{kind}", uuid=task_id, **fields)


class EventSender(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Knows the sender of events of the present connection."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, _consumer: Any, **_: Any) -> None:
        pass

    def start(self, consumer: Any) -> None:
        _dispatchers[:] = [consumer.event_dispatcher]
        _consumers[:] = [consumer]

    def stop(self, _consumer: Any) -> None:
        _dispatchers.clear()
        _consumers.clear()


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
