"""Jobs of durable no-op steps on DBOS: `python -m benchmarks.peers.dbos_jobs URL [--wal]`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version

from dbos import DBOS

from benchmarks.peers.serving import serve


@DBOS.step()  # type: ignore[untyped-decorator]  # not installed where types are checked
def step(number: int) -> str:
    return f"done {number}"


@DBOS.workflow()  # type: ignore[untyped-decorator]  # as above
def job(steps: int) -> str:
    for number in range(steps):
        step(number)
    return "done"


def launch(url: str, *, wal: bool) -> str:
    """Starts DBOS in this process; says what of SQLite it runs with."""
    pragmas = ""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            if wal:  # a property of the file
                connection.execute("PRAGMA journal_mode=WAL")
            journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
            synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
            pragmas = f"journal_mode={journal}, synchronous={synchronous} (2 is FULL), "
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    return pragmas


def main(url: str, *, wal: bool) -> None:
    pragmas = launch(url, wal=wal)

    def run(jobs: int, steps: int) -> None:
        handles = [DBOS.start_workflow(job, steps) for _ in range(jobs)]
        for handle in handles:
            assert handle.get_result() == "done"

    serve(f"dbos {version('dbos')}, {pragmas}start_workflow, its defaults", run, 2)
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], wal="--wal" in sys.argv)
