"""Looking after a running command: the memory and the number of its processes, the size of its workspace.

Where a cgroup or a resource limit holds a cap, the kernel does so at once; this is for the caps that nothing else holds
for a whole tree of processes. It looks four times a second, so a burst may pass a cap for a moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from jobs.resolver import open_workspace
from jobs.workspace import walk
from storage.errors import SostenutoError
from worker.sandbox.base import Caps, Ending

INTERVAL = 0.25
_SCAN_EVERY = 0.5
_SCAN_SHARE = 20  # a scan that takes long is repeated after 20 times that long
_TOLERANCE = 16  # the sandbox's own processes; and where the kernel caps them, it refuses before we kill
_PAGE = os.sysconf("SC_PAGE_SIZE")
_REMEMBERED = 1000


@dataclass(slots=True)
class _Usage:
    """What is remembered of a workspace from one command to the next, so that many short ones are noticed too."""

    bytes: int = 0
    files: int = 0
    due: float = _SCAN_EVERY
    """seconds of running until the next scan"""


class Watch:
    """One for all commands of a sandbox."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._lock = threading.Lock()
        self._usages: dict[Path, _Usage] = {}

    def look(self, pid: int, workspace: Path, passed: float) -> Ending | None:
        """Why the command must be killed, if it must; `passed` are the seconds since the last look."""
        processes = process_tree(pid)
        if len(processes) > self._caps.processes + _TOLERANCE:
            return Ending.PROCESSES
        if _memory(processes) > self._caps.memory_bytes:
            return Ending.MEMORY
        return Ending.DISK if self._grew_too_large(workspace, passed) else None

    def _grew_too_large(self, workspace: Path, passed: float) -> bool:
        """A workspace that was too large already and does not grow is left alone: something must be able to delete."""
        with self._lock:
            while len(self._usages) > _REMEMBERED:
                del self._usages[next(iter(self._usages))]
            usage = self._usages.setdefault(workspace, _Usage())
            usage.due -= passed
            if usage.due > 0:
                return False
            usage.due = float("inf")  # this thread scans
        started = monotonic()
        size, files = _measure(workspace, max(self._caps.workspace_files, usage.files))
        grew = size > max(usage.bytes, self._caps.workspace_bytes) or files > max(
            usage.files, self._caps.workspace_files
        )
        usage.bytes, usage.files = size, files
        usage.due = max(_SCAN_EVERY, (monotonic() - started) * _SCAN_SHARE)
        return grew


def process_tree(pid: int) -> list[int]:
    """The process and all that descend from it, as far as /proc tells."""
    found = [pid]
    for parent in found:  # grows while it is walked
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_bytes().split())
    return found


def _memory(processes: list[int]) -> int:
    """Bytes in use: what each process has for itself, and the largest of what they share."""
    own = shared = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError):
            _, resident, common, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
            own += resident - common
            shared = max(shared, common)
    return (own + shared) * _PAGE


def _measure(workspace: Path, most_files: int) -> tuple[int, int]:
    """Bytes and entries of a workspace; stops counting once there are more than `most_files`."""
    size = count = 0
    with contextlib.suppress(SostenutoError):
        root_fd = open_workspace(workspace)
        try:
            for entry in walk(root_fd, ""):
                size += entry.size
                count += 1
                if count > most_files:
                    break
        finally:
            os.close(root_fd)
    return size, count
