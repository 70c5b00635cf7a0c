"""Processes of a run: their environment, and their CPU time and memory as the kernel counts them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from tests.servers.processes import process_tree

_TICKS = os.sysconf("SC_CLK_TCK")


def environment(**more: str) -> dict[str, str]:
    """For every process that is measured: the caller's without what is configured there, and with bytecode kept."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SOSTENUTO_", "OPENAI_"))
    }
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | more


def cpu_seconds(roots: Iterable[int]) -> float:
    """What the processes and their descendants have used, with children that are gone."""
    total = 0
    for pid in _all(roots):
        with contextlib.suppress(OSError):  # gone meanwhile
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / _TICKS


def memory_mb(roots: Iterable[int]) -> float:
    """Resident memory of the processes and their descendants, what they share counted once (PSS)."""
    total = 0
    for pid in _all(roots):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1000


def _all(roots: Iterable[int]) -> set[int]:
    return {pid for root in roots for pid in process_tree(root)}
