"""The Celery application of a worker process, with the settings that CELERY's behaviour asks for.

Early ack, no prefetch, no results, ids only: at-least-once comes from the lease and the sweep, never from the broker.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from celery.worker import state as celery_state
from kombu import Queue

import jobs
from jobs.broker import broker_options
from jobs.errors import ConfigurationError
from jobs.installation import broker_url
from worker.bootsteps import EventSender, HubWakeUp, wake_event_loop
from worker.process import WorkerProcess
from worker.tasks import register_tasks


def consume(
    process: WorkerProcess, log_level: str, *, on_ready: Callable[[], None], on_shutdown: Callable[[], None]
) -> int:
    """Takes wake-ups until `stop_consuming`, in the main thread; returns the exit code.

    `on_ready` runs once the queues are being read, `on_shutdown` when a remote control asks for the end.
    """
    # Celery warns root because of pickled messages; this worker takes JSON only, and commands run in a sandbox.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app = make_app(process)
    signals.worker_ready.connect(lambda **_: on_ready(), weak=False)
    signals.worker_shutting_down.connect(lambda **_: on_shutdown(), weak=False)
    worker = app.Worker(
        hostname=process.name,
        pool="threads",
        concurrency=process.settings.concurrency,
        queues=process.queues,
        without_gossip=True,
        without_mingle=True,
        quiet=True,
        loglevel=log_level.upper(),
    )
    worker.start()
    return int(worker.exitcode or 0)


def stop_consuming() -> None:
    """Lets `consume` return once the pool's threads are done. Takes no lock: a signal handler may call it."""
    celery_state.should_stop = 0  # the exit code
    wake_event_loop()


def make_app(process: WorkerProcess) -> Celery:
    """The application whose tasks work for `process`."""
    refuse_foreign_jobs_package()
    url = broker_url(process.settings)
    app = Celery("sostenuto", broker=url)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_acks_late=False,
        task_reject_on_worker_lost=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[Queue(name) for name in process.queues],
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=True,
        worker_send_task_events=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=broker_options(url),
    )
    app.steps["consumer"].update((HubWakeUp, EventSender))
    register_tasks(app, process)
    return app


def refuse_foreign_jobs_package() -> None:
    """Raises ConfigurationError when `jobs` is another project's package, found first on the import path."""
    ours = Path(__file__).parents[1] / "jobs"
    found = Path(jobs.__file__ or "").parent
    if found.resolve() != ours.resolve():
        raise ConfigurationError(
            f"another package named jobs shadows Sostenuto's: {found}",
            hint="start the worker from another folder, or take that folder out of PYTHONPATH",
        )
