"""Wake-ups: small Celery messages that say "your queue has work", sent by one thread on its own connection.

They are sent after the commit, and they may be lost, doubled or late: the database is the truth and the sweep mends
what is missing. So a broker that is down or frozen costs a submitter at most `TIMEOUT_SECONDS`, and no job.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.broker import broker_options
from jobs.states import State
from jobs.tracing import context_here, within
from storage.crashpoints import CrashPoint, crash_point

if TYPE_CHECKING:
    from celery import Celery
    from kombu.connection import Connection

TIMEOUT_SECONDS = 1.0

AGENT_QUEUE = "agent"  # slices of agents
CONTEXT_QUEUE = "context"  # summaries: compactions, and those of jobs that ended
SUMMARY = "summary"  # a kind of work, not a queue: the final summaries of jobs
QUEUES = (AGENT_QUEUE, CONTEXT_QUEUE)
TASK_NAMES = {
    AGENT_QUEUE: "sostenuto.agent",
    CONTEXT_QUEUE: "sostenuto.context",
    SUMMARY: "sostenuto.summary",
}
QUEUE_OF_STATE = {State.QUEUED: AGENT_QUEUE, State.COMPRESSING: CONTEXT_QUEUE}


@dataclass(slots=True)
class WakeUp:
    """One message to a queue, or of a kind of work; `done` is set when its fate is known."""

    queue: str
    job_id: str
    done: threading.Event = field(default_factory=threading.Event)
    delivered: bool = False
    trace: Any = field(default_factory=context_here)  # of what sent it


class WakeUpPublisher:
    """The only sender of Celery messages in a process. Its thread starts with the first wake-up."""

    def __init__(self, broker_url: str) -> None:
        self._url = broker_url
        self._queue: queue.SimpleQueue[WakeUp | None] = queue.SimpleQueue()
        self._unsent: dict[tuple[str, str], WakeUp] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.delivered = 0  # counted by the thread alone
        self.failed = 0
        self._connection: Connection | None = None
        self._producer: Any = None  # of that connection
        self._celery: Celery | None = None

    def send(self, queue_name: str, job_id: str) -> WakeUp:
        """Hands a wake-up to the thread and returns at once. Nothing is promised about its delivery.

        One that still waits to be sent serves for the same job: a broker that is away for hours, while the sweep wakes
        every few seconds, leaves no more behind than there are jobs.
        """
        with self._lock:
            self._start()
            wake_up = self._unsent.get((queue_name, job_id))
            if wake_up is None:
                wake_up = self._unsent[queue_name, job_id] = WakeUp(queue_name, job_id)
                self._queue.put(wake_up)
            return wake_up

    def send_and_wait(self, queue_name: str, job_id: str) -> bool:
        """Like `send`, and waits up to `TIMEOUT_SECONDS` for the broker. False: unknown or not delivered."""
        wake_up = self.send(queue_name, job_id)
        wake_up.done.wait(TIMEOUT_SECONDS)
        return wake_up.delivered

    def close(self) -> None:
        """Lets the thread end after what it has in hand; waits for it no longer than a send may take."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(TIMEOUT_SECONDS)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="wake-ups", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (wake_up := self._queue.get()) is not None:
            with self._lock:
                del self._unsent[wake_up.queue, wake_up.job_id]
            try:
                crash_point(CrashPoint.PUBLISH_SENDING)
                with within(wake_up.trace):
                    self._publish(wake_up)
                crash_point(CrashPoint.PUBLISH_SENT)
                wake_up.delivered = True
                self.delivered += 1
            except Exception:  # noqa: BLE001 - whatever the transport raises: the sweep sends it again
                self.failed += 1
                self._disconnect()
            finally:
                wake_up.done.set()
        self._disconnect()

    def _publish(self, wake_up: WakeUp) -> None:
        if self._celery is None:
            self._celery = _sender()
        if self._connection is None or self._producer is None:
            self._connection = _connect(self._url)
            self._producer = self._celery.amqp.Producer(self._connection)
        self._celery.send_task(
            TASK_NAMES[wake_up.queue],
            args=[wake_up.job_id],
            queue=CONTEXT_QUEUE if wake_up.queue == SUMMARY else wake_up.queue,
            producer=self._producer,
            ignore_result=True,
            timeout=TIMEOUT_SECONDS,
            confirm_timeout=TIMEOUT_SECONDS,  # RabbitMQ's word that it has it may never come
            retry=True,
            retry_policy={"max_retries": 0},  # without it a refused connection takes six seconds to fail
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.collect()  # unlike release, it does not wait for RabbitMQ to agree
            self._connection = self._producer = None


def _sender() -> Celery:
    from celery import Celery  # half a second to import, and only senders need it

    app = Celery("sostenuto", set_as_current=False)
    app.conf.update(task_ignore_result=True, task_serializer="json", task_create_missing_queues=True)
    return app


def monitoring_app(url: str) -> Celery:
    """What Flower asks workers through."""
    from celery import Celery

    app = Celery("sostenuto", broker=url, set_as_current=False)
    app.conf.update(
        accept_content=["json"], task_default_queue=AGENT_QUEUE, broker_transport_options=broker_options(url)
    )
    return app


def _connect(url: str) -> Connection:
    from kombu.connection import Connection

    options: dict[str, Any] = broker_options(url) | {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "max_retries": 0,
    }
    return Connection(url, connect_timeout=TIMEOUT_SECONDS, transport_options=options)
