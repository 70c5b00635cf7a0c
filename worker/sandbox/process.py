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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Protocol

from worker.cancel import CancelToken
from worker.sandbox.base import Ending, Outcome
from worker.sandbox.watch import INTERVAL, Watch

_BLOCK = 1 << 18
_LAST = 500
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


def spawn(argv: Sequence[str], *, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a sandbox's outermost program from the thread that outlives all jobs: a session of its own, an empty
    environment, no input, output and errors in one pipe, and no descriptor but those named."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,
            bufsize=0,
        )

    return _spawner.submit(start).result()


def supervise(
    running: Running,
    watch: Watch,
    *,
    workspace: Path,
    timeout: float,
    cancel: CancelToken,
    on_output: Callable[[bytes], None],
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

    unregister = cancel.on_cancel(kill)
    try:
        look = functools.partial(watch.look, running.pid, workspace)
        ending = _follow(running, look, monotonic() + timeout, kill, take)
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
    on_output: Callable[[bytes], None],
) -> Ending | None:
    """Until nothing of it is alive and its output is read; the reason if it had to be killed for a cap or its time."""
    poll = select.poll()
    waiting = {running.output_fd, running.done_fd}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    ending: Ending | None = None
    looked = monotonic()
    while waiting:
        for fd, _ in poll.poll(INTERVAL * 1000):
            if fd == running.output_fd and (data := os.read(fd, _BLOCK)):
                on_output(data)
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
