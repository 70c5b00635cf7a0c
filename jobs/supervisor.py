"""Workers, and a web server, that belong to one program: started, watched, started again when they die, ended with it.

    start ─▶ ready ─▶ … ─▶ died ─▶ (a pause that doubles up to 30 s) ─▶ start
                       ├─▶ drained: it was asked to leave, and stays away
                       └─▶ stop: SIGTERM, the grace time, then SIGKILL

Each worker's standard input is a pipe of ours: a worker stops in order when this program is gone, however it died
(see `jobs.parent`). Each is in a session of its own, so that a terminal's Ctrl-C reaches this program alone, and
it decides how its workers stop. One thread uses a supervisor; nothing here is thread-safe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from jobs.errors import SostenutoError
from jobs.owner_record import ProcessMark

POLL_SECONDS = 0.1
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SETTLED_SECONDS = 60.0  # a worker that was ready for so long has not died of its start
STOP_MARGIN = 8.0  # beyond the grace time: a worker needs up to 7 s to give its jobs back and leave
LARGEST_LOG = 10 << 20

Clock = Callable[[], float]


class WorkerFailed(SostenutoError):
    """A worker cannot start at all, so neither can what needs it. The exit code is the worker's."""

    def __init__(self, message: str, *, hint: str | None, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to keep running. `environment` and `folder` None: this program's own."""

    name: str
    log: Path
    queues: Sequence[str] = ("agent",)
    concurrency: int | None = None
    environment: Mapping[str, str] | None = None
    folder: Path | None = None

    def command(self) -> list[str]:
        # -P: a folder that happens to have a `worker` or `jobs` package must not shadow ours.
        command = [sys.executable, "-P", "-m", "worker", "--with-parent"]
        command += ["--queues", ",".join(self.queues), "--name", self.name]
        return command if self.concurrency is None else [*command, "--concurrency", str(self.concurrency)]

    @property
    def title(self) -> str:
        """For sentences."""
        return f"the worker {self.name}"


@dataclass(frozen=True, slots=True)
class WebSpec(WorkerSpec):
    """The web server on 127.0.0.1, kept running as a worker is. Its `node` is its URL."""

    port: int = 0

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "jobs.cli", "web", "--with-parent", "--port", str(self.port)]

    @property
    def title(self) -> str:
        return "the web server"


class WorkerChild:
    """One worker process. `node` is its name among all workers, known once it is ready."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.node: str | None = None
        self.drained = False  # it said that it ends because it was asked to leave
        self._said = b""
        self._log_start = _rotate(spec.log)
        with spec.log.open("ab") as log:
            self._process = subprocess.Popen(
                spec.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=spec.environment, cwd=spec.folder, start_new_session=True,
            )  # fmt: skip
        os.set_blocking(self._output.fileno(), False)

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether it takes jobs."""
        return self.node is not None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        code = self._process.poll()
        self._listen()  # after that: its last words are heard as well
        return code

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError, ValueError):
            self._said += self._output.read() or b""
        for line in self._said.decode(errors="replace").splitlines():
            if line.startswith("ready ") and self.node is None:
                self.node = line.removeprefix("ready ")
            self.drained = self.drained or line == "drained"
        self._said = self._said.rpartition(b"\n")[2][-1000:]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended is no error."""
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        """Let go of its pipes. A worker that still runs takes it as the order to stop."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def log_lines(self) -> list[str]:
        """The end of what this process wrote to its log."""
        with self.spec.log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, log.tell() - 8000))
            return log.read().decode(errors="replace").splitlines()


class Change(StrEnum):
    """What happened to a worker."""

    READY = "ready"
    DIED = "died"
    DRAINED = "drained"
    STARTED_AGAIN = "started_again"


@dataclass(frozen=True, slots=True)
class Happening:
    """For whoever tells people. With a death come its `exit_code`, the `pause` in seconds until the next start, and
    `last_words`, the end of its log, unless a signal took it by surprise."""

    change: Change
    name: str
    pid: int
    exit_code: int | None = None
    pause: float = 0.0
    last_words: str = ""


@dataclass(slots=True)
class _Slot:
    spec: WorkerSpec
    child: WorkerChild | None = None
    told_ready: bool = False
    ready_since: float = 0.0
    drained: bool = False
    deaths: int = 0  # in a row, without a settled time between them
    due: float = 0.0


class Supervisor:
    """Keeps one process running for each spec, from `start` to `stop`."""

    def __init__(self, specs: Sequence[WorkerSpec], clock: Clock = time.monotonic) -> None:
        self._slots = [_Slot(spec) for spec in specs]
        self._clock = clock
        self._all_were_ready = False

    @property
    def children(self) -> list[WorkerChild]:
        """The processes as of the last look, those included whose end was not noticed yet."""
        return [slot.child for slot in self._slots if slot.child is not None]

    @property
    def all_ready(self) -> bool:
        return all(slot.drained or (slot.child is not None and slot.child.ready) for slot in self._slots)

    def marks(self) -> list[ProcessMark]:
        """The running processes, for the record of what this program leaves behind should it be killed."""
        marks = (ProcessMark.of(child.pid) for child in self.children)
        return [mark for mark in marks if mark is not None]

    def start(self) -> None:
        """Starts every worker; does not wait. Raises SostenutoError where a process cannot be made."""
        for slot in self._slots:
            slot.child = _started(slot.spec)

    def look(self) -> list[Happening]:
        """Notices what happened and starts again what is due; call it every POLL_SECONDS or so.

        Raises WorkerFailed when a worker gives up by itself before all were ready once: what is wrong then is wrong
        for good (a setting, the database), and trying again would only hide it.
        """
        happenings = [happening for slot in self._slots for happening in self._look_at(slot)]
        self._all_were_ready = self._all_were_ready or self.all_ready
        return happenings

    def _look_at(self, slot: _Slot) -> Iterator[Happening]:
        if slot.child is None:
            if not slot.drained and self._clock() >= slot.due:
                slot.child, slot.told_ready = _started(slot.spec), False
                yield Happening(Change.STARTED_AGAIN, slot.spec.name, slot.child.pid)
            return
        child, code = slot.child, slot.child.poll()
        if child.ready and not slot.told_ready:
            slot.told_ready, slot.ready_since = True, self._clock()
            yield Happening(Change.READY, slot.spec.name, child.pid)
        if code is None:
            return
        if child.drained:
            child.close()
            slot.child, slot.drained = None, True
            yield Happening(Change.DRAINED, slot.spec.name, child.pid, code)
            return
        if code > 0 and not self._all_were_ready:
            raise _failure(child, code)
        settled = child.ready and self._clock() - slot.ready_since >= SETTLED_SECONDS
        slot.deaths = 1 if settled else slot.deaths + 1
        pause = restart_pause(slot.deaths)
        slot.due = self._clock() + pause
        child.close()
        slot.child = None
        words = next(reversed(child.log_lines()), "") if code >= 0 else ""
        yield Happening(Change.DIED, slot.spec.name, child.pid, code, pause, words)

    def stop(self, grace_seconds: float, hurry: Callable[[], int] = lambda: 0) -> list[WorkerChild]:
        """Stops every worker in order and returns those that had to be killed.

        SIGTERM, and SIGKILL a little after the grace time. `hurry` says how urgent it has become meanwhile: from 1
        on the workers get a second SIGTERM, which ends their grace time, from 2 on they are killed.
        """
        running = [child for child in self.children if child.poll() is None]
        _signal(running, signal.SIGTERM)
        deadline = self._clock() + grace_seconds + STOP_MARGIN
        hurried, killed = False, False
        stubborn: list[WorkerChild] = []
        while running := [child for child in running if child.poll() is None]:
            urgency = hurry()
            if urgency >= 1 and not hurried:
                hurried = True
                _signal(running, signal.SIGTERM)
                deadline = min(deadline, self._clock() + STOP_MARGIN)
            if not killed and (urgency >= 2 or self._clock() > deadline):
                killed, stubborn = True, list(running)
                _signal(running, signal.SIGKILL)
            time.sleep(POLL_SECONDS / 2)
        for slot in self._slots:
            if slot.child is not None:
                slot.child.close()
                slot.child = None
        return stubborn


def restart_pause(deaths: int) -> float:
    """Seconds before the next start: none after a first death, then doubling up to LONGEST_PAUSE."""
    return 0.0 if deaths <= 1 else min(FIRST_PAUSE * 2.0 ** min(deaths - 2, 32), LONGEST_PAUSE)


def ending_text(exit_code: int) -> str:
    """How a process ended, in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _started(spec: WorkerSpec) -> WorkerChild:
    try:
        return WorkerChild(spec)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise SostenutoError(f"{spec.title} cannot be started: {reason}") from error


def _signal(children: Sequence[WorkerChild], number: signal.Signals) -> None:
    for child in children:
        child.signal(number)


def _failure(child: WorkerChild, code: int) -> WorkerFailed:
    """The worker's own words, where it left any."""
    lines = child.log_lines()
    said = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), None)
    message = said or f"{child.spec.title} {ending_text(code)} at its start"
    return WorkerFailed(message, hint=hint or f"its log: {child.spec.log}", exit_code=code)


def _rotate(log: Path) -> int:
    """Makes room for a process's log; returns where its part will begin."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= LARGEST_LOG:
        return size
    log.replace(log.with_suffix(".old.log"))
    return 0
