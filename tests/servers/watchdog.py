"""Ends what a test session leaves behind, even when pytest itself was killed with SIGKILL.

Started by the session as `python -I watchdog.py MARK FOLDER`, with a pipe as its standard input. When the
pipe closes or its parent is gone, it kills every process that carries the mark in its environment or a file of
the session's folder in its arguments, and removes the folder. Marks are inherited, so that a worker's children
are found too; servers that are given a clean environment, such as the embedded broker, are found by their files.
Linux only (it reads /proc), standard library only (it runs outside the project's environment).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "TEST_SESSION_MARK"


def marked_processes(mark: str, folder: str) -> list[int]:
    """Pids that carry the mark or one below it (`mark/…`), or name a file below the folder; never this process."""
    exact = f"{MARK}={mark}".encode()
    below = f"{folder}/".encode()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or someone else's
            variables = (process / "environ").read_bytes().split(b"\0")
            marked = any(item == exact or item.startswith(exact + b"/") for item in variables)
            if marked or below in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def kill_marked(mark: str, folder: str) -> int:
    """Kill until nothing is left (a fork may escape the first look). Returns how many were found."""
    killed = set()
    for _ in range(100):
        pids = marked_processes(mark, folder)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.01)  # let the kernel take them down before looking again
    return len(killed)


def main() -> None:
    mark, folder = sys.argv[1:]
    parent = os.getppid()
    while os.getppid() == parent:  # a forked child may hold the pipe open beyond the session's death
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 1):
            break
    kill_marked(mark, folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
