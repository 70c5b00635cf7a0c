"""A cgroup a command, where the worker may make one, to cap the number of its processes.

RLIMIT_NPROC cannot do it: it counts all processes of a user, and root's not at all. Where no group can be made, the watch
counts instead, a little later.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "sostenuto-"


def pids_parent() -> Path | None:
    """The folder of this process's own cgroup in which a child group with a pids limit can be made, else None."""
    try:
        memberships = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):  # version 1
            folder = _ROOT / "pids" / path.lstrip("/")
        elif not controllers and _delegates_pids(_ROOT / path.lstrip("/")):  # version 2
            folder = _ROOT / path.lstrip("/")
        else:
            continue
        if _usable(folder):
            _remove_stale(folder)
            return folder
    return None


def _delegates_pids(folder: Path) -> bool:
    try:
        return "pids" in (folder / "cgroup.subtree_control").read_text("utf-8").split()
    except OSError:
        return False


def _usable(folder: Path) -> bool:
    try:
        group = ProcessGroup(folder, 1)
    except OSError:
        return False
    group.remove()
    return True


def _remove_stale(folder: Path) -> None:
    """Remove the empty groups of workers that were killed; their names tell whose they were."""
    for group in folder.glob(f"{_PREFIX}*"):
        worker = group.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", worker).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


class ProcessGroup:
    """A new group with at most `limit` processes. Raises OSError if it cannot be made.

    A process joins by writing 0 into `entrance`. The group of a killed worker is removed by the next that starts.
    """

    def __init__(self, parent: Path, limit: int) -> None:
        self._folder = parent / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self._folder.mkdir()
        self.entrance = self._folder / "cgroup.procs"
        try:
            (self._folder / "pids.max").write_text(str(limit), "utf-8")
            if not os.access(self.entrance, os.W_OK):
                raise PermissionError(f"cannot join {self._folder}")
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the group once it is empty; one that is not stays."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
