"""`python -m worker`: one worker process."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import threading

from jobs.embedded import BrokerKeeper
from jobs.errors import SostenutoError
from jobs.installation import Installation, open_installation
from jobs.parent import follow_parent, tell_drained, tell_ready
from jobs.plain_logs import plain_logs
from jobs.settings import Settings
from jobs.settings_sources import load_settings
from jobs.tracing import start_tracing, stop_tracing
from jobs.wakeups import QUEUES
from storage.masking import register_secrets
from worker.app import consume, stop_consuming
from worker.bootsteps import stop_reading
from worker.drafts import DraftTeller
from worker.heartbeat import Control, Heartbeat, LeaseWatch
from worker.process import WorkerProcess
from worker.sandbox.base import Level, Sandbox, SandboxUnavailable
from worker.sandbox.detect import detect
from worker.shutdown import EXIT_SECONDS, STOP_SECONDS, Drain, Shutdown, finish, install_signal_handlers
from worker.sweep import Sweep

log = logging.getLogger("worker")

_BANNER = """********************************************************************
UNSANDBOXED: what models say is run with all rights of this worker.
It was allowed by SOSTENUTO_ALLOW_UNSANDBOXED; unset it to refuse Bash.
********************************************************************"""


def main(arguments: list[str] | None = None) -> int:
    """Runs until it is told to stop. Returns the exit code."""
    options = _parse(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    plain_logs()
    for noisy in ("alembic", "celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        settings = load_settings()
        register_secrets(settings.secrets())
        plain_logs(as_json=settings.log_format == "json")
        if options.concurrency is not None:
            settings = settings.model_copy(update={"concurrency": options.concurrency})
        if options.with_parent:
            follow_parent(settings.grace_seconds + STOP_SECONDS + EXIT_SECONDS + 5)
        keeper = BrokerKeeper(settings.data_dir) if settings.embedded_broker else None
        if keeper is not None:
            keeper.start()
        try:
            with open_installation(settings) as installation:
                return _work(installation, options)
        finally:
            if keeper is not None:
                keeper.stop()
    except SostenutoError as error:
        sys.stderr.write(f"error: {error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code


def _work(installation: Installation, options: argparse.Namespace) -> int:
    start_tracing(installation.settings, "sostenuto-worker")
    sandbox = _sandbox(installation.settings)
    process = WorkerProcess(installation, options.name, options.queues, sandbox)
    shutdown = Shutdown(process)
    heartbeat, watch = Heartbeat(process), LeaseWatch(process)
    control, sweep = Control(process), Sweep(process)
    drafts = DraftTeller(process)
    process.mcp.start(on_change=process.register)
    process.register()

    def ready() -> None:
        install_signal_handlers(shutdown, stop_consuming)
        log.info("worker %s is ready: queues %s, %d slots", process.name, ",".join(process.queues), process.settings.concurrency)  # fmt: skip
        if options.with_parent:
            tell_ready(process.name)

    def leave() -> None:
        if options.with_parent:
            tell_drained()
        shutdown.request()
        stop_consuming()

    drain = Drain(process, lambda: stop_reading(process.queues), leave)
    threads: list[threading.Thread] = [
        heartbeat,
        watch,
        control,
        drafts,
        sweep,
        shutdown,
        drain,
        process.hooks,
    ]
    for thread in threads:
        thread.start()
    exit_code = consume(process, options.log_level, on_ready=ready, on_shutdown=shutdown.request)
    process.stopping.set()
    for stoppable in (sweep, process.hooks, drafts, control, watch, heartbeat):
        stoppable.stop()
    process.mcp.stop()
    finish(process)
    stop_tracing()
    process.exchanges.close()
    process.closed.set()
    return exit_code


def _sandbox(settings: Settings) -> Sandbox | None:
    """Without one, Bash refuses and all else works; below a demanded level the worker does not start."""
    try:
        sandbox = detect(settings)
    except SandboxUnavailable as error:
        if settings.sandbox_min is not None:
            raise
        log.warning("Bash is refused: %s; %s", error, error.hint)
        return None
    if sandbox.level is Level.NONE:
        log.warning("%s", _BANNER)
    log.info("sandbox: %s", sandbox.description)
    return sandbox


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sostenuto worker", description="Runs agents until it is told to stop."
    )
    parser.add_argument(
        "--queues", type=_queues, default=list(QUEUES), help=f"of {','.join(QUEUES)}; default: all"
    )
    parser.add_argument("--concurrency", type=int, help="agents at once in this process")
    parser.add_argument(
        "--name", type=_node_name, default=_node_name("worker"), help="unique among all workers"
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="print a line when ready, and stop in order when standard input ends: for a parent that may die",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


def _queues(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in QUEUES]:
        raise argparse.ArgumentTypeError(f"there is no queue {unknown[0]!r}: {', '.join(QUEUES)}")
    return names


def _node_name(text: str) -> str:
    """Unique per process: two Celery nodes of one name would take each other's control messages."""
    return text if "@" in text else f"{text}-{os.getpid()}@{socket.gethostname()}"


if __name__ == "__main__":
    sys.exit(main())
