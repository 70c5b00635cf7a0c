"""Starting a sandboxed command and seeing it to its end.

`supervise` reads what it prints, looks after its caps, and stops it on a timeout or a cancel. It returns only when
nothing of it is alive.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Protocol

from worker.cancel import CancelToken
from worker.sandbox.base import Ending, Outcome, Service
from worker.sandbox.cgroups import ProcessGroup
from worker.sandbox.watch import INTERVAL, Watch

_BLOCK = 1 << 18
_LAST = 500
_DEATH = 5  # seconds; the kernel needs milliseconds to end what was killed
JOIN_GROUP = 'echo 0 > "$1" && shift && exec "$@"'
"""Shell script: joins a process group before anything else of the sandbox exists, so that nothing escapes it."""

# A child that asks to die with its parent dies when the *thread* that started it ends, and the callers' threads come
# and go. This one stays as long as the process.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-spawner")


class Running(Protocol):
    """A command that was started. Its output ends when nothing of it is alive any more (or all of it closed it)."""

    @property
    def pid(self) -> int:
        """The root of its process tree."""
        ...

    @property
    def output_fd(self) -> int: ...

    @property
    def errors_fd(self) -> int | None:
        """Where stderr comes by itself; None where it comes with the output."""
        ...

    @property
    def done_fd(self) -> int:
        """Readable once nothing of the command is alive."""
        ...

    def kill(self) -> None:
        """Begin to kill all of it; may be called often and from any thread, until `close`."""
        ...

    def exit_code(self, last_output: bytes) -> int:
        """The shell's code of a command that is over. Raises SandboxUnavailable if it never started; what was printed
        last then says why."""
        ...

    def close(self) -> None:
        """Release the descriptors and reap."""
        ...


def spawn(
    argv: Sequence[str], *, pass_fds: Sequence[int], service: Service | None = None
) -> subprocess.Popen[bytes]:
    """Start a sandbox's outermost program from the thread that outlives all jobs: a session of its own, an empty
    environment, no descriptor but those named; no input, and output and errors in one pipe, unless it is to serve."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=service.stdin if service else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if service else subprocess.STDOUT,
            env={},
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,
            bufsize=0,
        )

    return _spawner.submit(start).result()


class Child:
    """The pipes of a sandbox's outermost program, and the report that it writes about the command's end."""

    def __init__(
        self, process: subprocess.Popen[bytes], report: BinaryIO, group: ProcessGroup | None
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._group = group
        self.report = report
        self.pid = process.pid
        self.output_fd = process.stdout.fileno()
        self.errors_fd = process.stderr.fileno() if process.stderr else None
        self.done_fd = -1  # opened by the level, which knows whose death ends it all

    def close(self) -> None:
        """See `Running.close`. After a reader that raised, nobody has waited yet for the death of all of it."""
        poll = select.poll()
        poll.register(self.done_fd, select.POLLIN)
        poll.poll(_DEATH * 1000)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr, self.report):
            if pipe is not None:
                pipe.close()
        os.close(self.done_fd)
        if self._group:
            self._group.remove()


def supervise(
    running: Running,
    watch: Watch,
    *,
    workspace: Path,
    timeout: float,
    cancel: CancelToken,
    on_output: Callable[[bytes], None],
    on_errors: Callable[[bytes], None] | None = None,
) -> Outcome:
    """See `Sandbox.run`; releases `running` whatever happens."""
    lock = threading.Lock()
    closed = False

    def kill() -> None:
        with lock:  # a cancel that comes late must not kill a stranger that got the process's number
            if not closed:
                running.kill()

    last = b""

    def take(data: bytes) -> None:
        nonlocal last
        last = data[-_LAST:]
        on_output(data)

    def take_errors(data: bytes) -> None:
        nonlocal last
        last = data[-_LAST:]
        if on_errors is not None:
            on_errors(data)

    takers = {running.output_fd: take}
    if running.errors_fd is not None:
        takers[running.errors_fd] = take_errors
    unregister = cancel.on_cancel(kill)
    try:
        look = functools.partial(watch.look, running.pid, workspace)
        ending = _follow(running, look, monotonic() + timeout, kill, takers)
        if ending is None and cancel.reason is not None:
            ending = Ending.CANCELLED
        return Outcome(ending) if ending else Outcome(Ending.EXITED, running.exit_code(last))
    finally:
        unregister()
        kill()
        with lock:
            closed = True
        running.close()


def _follow(
    running: Running,
    look: Callable[[float], Ending | None],
    deadline: float,
    kill: Callable[[], None],
    takers: Mapping[int, Callable[[bytes], None]],
) -> Ending | None:
    """Until nothing of it is alive and its output is read; the reason if it had to be killed for a cap or its time."""
    poll = select.poll()
    waiting = {*takers, running.done_fd}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    ending: Ending | None = None
    looked = monotonic()
    while waiting:
        for fd, _ in poll.poll(INTERVAL * 1000):
            if fd in takers and (data := os.read(fd, _BLOCK)):
                takers[fd](data)
                continue
            poll.unregister(fd)
            waiting.remove(fd)
        now = monotonic()
        if ending is None and now - looked >= INTERVAL:
            ending = look(now - looked)
            looked = now
        if ending is None and now >= deadline:
            ending = Ending.TIMEOUT
        if ending is not None:
            kill()
    return ending


def memory_file(data: bytes) -> int:
    """An anonymous file that holds `data`, to be inherited by a child; the caller closes it."""
    fd = os.memfd_create("sandbox", 0)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def send_kill(pidfd: int) -> None:
    """SIGKILL to the process behind a descriptor, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
