"""What nothing can be faster than here: bare commits with the same durability."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path


def sqlite_commits(file: Path, count: int) -> list[float]:
    """Milliseconds of `count` one-row commits, WAL and synchronous=FULL as the system runs."""
    times = []
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
        for number in range(count):
            began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (text) VALUES (?)", (f"row {number}",))
            connection.execute("COMMIT")
            times.append((time.perf_counter() - began) * 1000)
    return times
