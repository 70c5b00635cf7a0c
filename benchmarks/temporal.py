"""The contest's jobs on Temporal's development server, beside ours: `make bench-temporal`. Not part of `make bench`."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.bench import Bench, NotInstalled
from benchmarks.contestants import our_jobs, peers
from benchmarks.contests import KEEP_AS_MUCH, KEEP_HALF, STEPS, rounds, tables
from benchmarks.figures import Table
from tests.servers.processes import kill_tree
from tests.servers.session import free_port
from tests.waiting import wait_until

NAME = "Temporal, dev server on SQLite"
MISSING = (
    "there is no temporal: run `make bench-temporal`, or name the program in TEMPORAL, or put it on PATH"
)


def temporal(bench: Bench) -> list[Table]:
    """Raises NotInstalled where there is no server to start."""
    program = find(bench)
    with ExitStack() as stack:
        address, pid = stack.enter_context(_server(bench, program))
        names = {KEEP_AS_MUCH: NAME, KEEP_HALF: f"{NAME}, each step once"}
        running = [stack.enter_context(our_jobs(bench, "sqlite"))]
        running += stack.enter_context(peers(bench, names, "temporal_jobs", [address], 1, servers=[pid]))
        short = rounds(bench, running, bench.sizes.jobs, STEPS)
        long = rounds(bench, running[:2], 1, bench.sizes.long_steps)
    note = "Temporal's CPU is its worker's and its server's, which is the database, too. It is a server for development."
    return tables(bench, short, long, [note])


def find(bench: Bench) -> Path:
    """The `temporal` program: named in TEMPORAL, of the other systems' environment, or on PATH."""
    given = os.environ.get("TEMPORAL") or bench.peers / "bin" / "temporal"
    found = shutil.which(given) or shutil.which("temporal")
    if found is None or bench.peers_python is None:
        raise NotInstalled(MISSING)
    return Path(found)


@contextmanager
def _server(bench: Bench, program: Path) -> Iterator[tuple[str, int]]:
    """Its address and process, once it takes connections."""
    folder, port = bench.new_folder("temporal"), free_port()
    options = [
        "--headless",
        "--port",
        str(port),
        "--db-filename",
        str(folder / "temporal.db"),
        "--log-level",
        "error",
    ]
    command = [str(program), "server", "start-dev", *options]
    process = bench.session.spawn(command, folder / "server.log", submark=bench.folder.name, cwd=folder)
    try:
        wait_until(lambda: _answers(port), 60, "Temporal's server answers")
        yield f"127.0.0.1:{port}", process.pid
    finally:
        kill_tree(process)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
