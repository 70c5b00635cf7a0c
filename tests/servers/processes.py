"""Signals for a process and all its descendants, also those that made sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def process_tree(pid: int) -> list[int]:
    """The pid and its living descendants, parents first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # "pid (name) state ppid …": the name may itself hold spaces and brackets
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    tree = [pid]
    for member in tree:
        tree.extend(children.get(member, ()))
    return tree


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Send the signal to the process and its descendants; those already gone are no error."""
    for member in process_tree(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, number)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole tree, stopped first so that it cannot grow; returns when the root is reaped."""
    if process.poll() is None:
        signal_tree(process.pid, signal.SIGSTOP)
        signal_tree(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
