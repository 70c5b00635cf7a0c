"""`sostenuto up`: the embedded broker, the web server and worker processes, kept running until it is told to stop.

Exit codes: 0 stopped by Ctrl-C, SIGTERM or SIGHUP · 2 a setting or the data folder cannot be used · 4 another `up`
runs on this data folder · 5 database · 6 broker · otherwise that of a process which cannot start.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options
from jobs.cli.context import load
from jobs.cli.up_screen import Screen, listed, slow_text
from jobs.cli.web import PORT
from jobs.supervisor import POLL_SECONDS, STOP_MARGIN, Change, Supervisor, WebSpec, WorkerSpec
from jobs.wakeups import CONTEXT_QUEUE

if TYPE_CHECKING:
    from jobs.embedded import BrokerHandle
    from jobs.owner_record import OwnerRecord
    from jobs.settings import Settings

PATIENCE_SECONDS = 20.0  # then it says where a start that takes long can be looked into


def up(
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=64, help="Worker processes.")
    ] = 2,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, max=1000, help="Agents at once in each of them."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="Of the web server; 0: a free one.")
    ] = PORT,
    no_web: Annotated[bool, typer.Option("--no-web", help="Workers only.")] = False,
    json: options.Json = False,
) -> None:
    """Run everything on this machine. Starts broker, web server and workers, and restarts what dies. Ctrl-C stops it all.

    Jobs under way go on at its next start. Exit code 4: another `up` runs on this data folder.
    """
    from jobs.owner_record import owned

    settings = load()
    if concurrency is not None:
        settings = settings.model_copy(update={"concurrency": concurrency})
    logs = settings.data_dir / "logs"
    specs: list[WorkerSpec] = [
        WorkerSpec(f"agent-{number}", logs / f"agent-{number}.log", concurrency=concurrency)
        for number in range(1, workers + 1)
    ]
    # Apart from the agents: they never wait for each other's slots.
    specs.append(WorkerSpec("context-1", logs / "context-1.log", (CONTEXT_QUEUE,), concurrency))
    if not no_web:
        specs.append(WebSpec("web", logs / "web.log", port=port or _free_port()))
    screen, stop = Screen(json=json), _StopRequests()
    with owned(settings.data_dir, "sostenuto up") as record, stop.heard():
        _Up(settings, record, screen, stop).run(Supervisor(specs))
    screen.say("stopped", "stopped; jobs under way go on at the next start")


def _free_port() -> int:
    """One for the whole time, also for a server that is started in another's place."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


class _StopRequests:
    """How often this program was told to stop. Its handlers only count, so nothing can be interrupted halfway."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Counts signals in the block instead of dying of them."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, self._handle) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


class _Up:
    """One `up`, from the left-overs of an earlier one to its own orderly end."""

    def __init__(self, settings: Settings, record: OwnerRecord, screen: Screen, stop: _StopRequests) -> None:
        self._settings = settings
        self._record = record
        self._screen = screen
        self._stop = stop

    def run(self, supervisor: Supervisor) -> None:
        """Runs until it is told to stop. Raises SostenutoError where something cannot be started."""
        self._end_left_overs()
        self._prepare_database()
        with self._broker() as broker:
            try:
                supervisor.start()
                self._record.write(supervisor.marks())
                self._watch(supervisor, broker)
            finally:
                self._stop_workers(supervisor)

    def _end_left_overs(self) -> None:
        """An earlier `up` was killed: its workers stop by themselves, and those that cannot are killed."""
        from jobs.owner_record import end_left_overs

        found = self._record.left_over_workers()
        if found:
            pids = [worker.pid for worker in found]
            text = f"an earlier `up` was killed: waiting for its workers to stop (pid {listed(pids)})"
            self._screen.say("left_overs", text, "yellow", pids=pids)
            seconds = self._settings.grace_seconds + STOP_MARGIN
            ended = end_left_overs(found, seconds, lambda: self._stop.count > 0)
            killed = [worker.pid for worker in ended]
            text = f"killed, because they did not stop: pid {listed(killed)}" if killed else "they stopped"
            self._screen.say("left_overs_ended", text, "yellow", killed=killed)
        self._record.write()

    def _prepare_database(self) -> None:
        """Opens it once, so that a database that cannot be used is told before anything is started."""
        from jobs.installation import open_installation

        with open_installation(self._settings):
            return

    @contextmanager
    def _broker(self) -> Iterator[BrokerHandle | None]:
        """The embedded one, where none is configured. Each worker keeps it alive; the last to leave stops it."""
        from jobs.embedded import ensure_broker, stop_broker

        if not self._settings.embedded_broker:
            yield None
            return
        handle = ensure_broker(self._settings.data_dir)
        try:
            if handle.pid is not None and not handle.started:
                text = f"the broker of an earlier program still runs (pid {handle.pid}): using it"
                self._screen.say("broker_found", text, pid=handle.pid)
            yield handle
        finally:
            stop_broker(handle)

    def _watch(self, supervisor: Supervisor, broker: BrokerHandle | None) -> None:
        began, is_up, slow_told = time.monotonic(), False, False
        while not self._stop.count:
            for happening in supervisor.look():
                if happening.change is Change.STARTED_AGAIN:
                    self._record.write(supervisor.marks())
                if is_up or happening.change is not Change.READY:
                    self._screen.tell(happening)
            if not is_up and supervisor.all_ready:
                is_up = True
                self._screen.show_up(self._settings, broker, supervisor.children)
            elif not (is_up or slow_told) and time.monotonic() - began > PATIENCE_SECONDS:
                slow_told = True
                self._screen.say("slow", slow_text(self._settings), "yellow")
            time.sleep(POLL_SECONDS)
        grace = self._settings.grace_seconds
        text = f"stopping: agents have {grace:g} s to end their steps (Ctrl-C again: at once)"
        self._screen.say("stopping", text, grace_seconds=grace)

    def _stop_workers(self, supervisor: Supervisor) -> None:
        asked = self._stop.count
        killed = supervisor.stop(self._settings.grace_seconds, lambda: self._stop.count - asked)
        if killed:
            pids = [child.pid for child in killed]
            text = f"killed, because they did not stop: pid {listed(pids)}"
            self._screen.say("killed", text, "yellow", pids=pids)
