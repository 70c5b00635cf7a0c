"""`sostenuto workers`, and `sostenuto worker --drain`."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import options, render
from jobs.cli.context import opened
from jobs.cli.text import to_json
from jobs.errors import UsageError

if TYPE_CHECKING:
    from jobs.installation import Installation

POLL_SECONDS = 0.5


def workers(
    here: Annotated[bool, typer.Option("--here", help="Only those of this machine or container.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 where none runs, for health checks.")
    ] = False,
    json: options.Json = False,
) -> None:
    """List the workers that run now. Their state, queues, and how many jobs each has in hand."""
    from jobs.views import iso, worker_state
    from storage.runs import live_runs_by_worker

    with opened() as installation:
        found = _running(installation, platform.node() if here else None)
        runs = live_runs_by_worker(installation.db)
    if json:
        kept = ("name", "host", "pid", "queues", "concurrency", "version", "sandbox", "problems")
        told = [
            {name: row[name] for name in kept}
            | {"state": worker_state(row), "runs": runs.get(row["name"], 0)}
            | {name: iso(row[name]) for name in ("started_at", "seen_at")}
            for row in found
        ]
        print(to_json({"workers": told}))
    elif found:
        headings = ["WORKER", "STATE", "QUEUES", "RUNS", "SLOTS", "VERSION"]
        render.table(headings if render.on_terminal() else [], [_line(row, runs) for row in found])
    elif not check:
        render.note("no worker runs; start one: sostenuto worker, or sostenuto up")
    if check and not found:
        raise typer.Exit(1)


def drain(*, name: str | None, host: str | None, everywhere: bool, wait: bool) -> None:
    """Asks running workers to leave, and waits until they have. Raises UsageError where none fits."""
    from jobs.views import worker_state
    from storage.registry import request_drain
    from storage.runs import live_runs_by_worker

    if name is None and host is None and not everywhere:
        host = platform.node()
    with opened() as installation:
        chosen = [
            row["name"]
            for row in _running(installation, host)
            if name is None or _is_called(row["name"], name)
        ]
        if not chosen:
            which = f" called {name}" if name else f" on {host}" if host else ""
            raise UsageError(f"no worker{which} runs", hint="list them with: sostenuto workers")
        request_drain(installation.db, chosen, installation.settings.owner)
        told: dict[str, str] = {}
        while wait:
            left = {row["name"]: row for row in _running(installation, None) if row["name"] in chosen}
            runs = live_runs_by_worker(installation.db) if left else {}
            for worker in chosen:
                state = worker_state(left[worker]) if worker in left else "gone"
                text = f"{state}, {runs.get(worker, 0)} in hand" if worker in left else state
                if told.get(worker) != text:
                    told[worker] = text
                    render.line(f"{worker}: {text}")
            if not left:
                return
            time.sleep(POLL_SECONDS)
    for worker in chosen:
        render.line(f"{worker}: asked to leave")


def _running(installation: Installation, host: str | None) -> list[dict[str, Any]]:
    from storage.registry import live_workers

    found = live_workers(installation.db, 2 * installation.settings.lease_seconds)
    return [row for row in found if host is None or row["host"] == host]


def _is_called(worker: str, name: str) -> bool:
    """A worker's whole name, the part before its host, or that without the process id that a worker adds."""
    short = worker.partition("@")[0]
    return name in (worker, short, short.rpartition("-")[0])


def _line(row: Mapping[str, Any], runs: Mapping[str, int]) -> Sequence[str]:
    from jobs.views import worker_state

    in_hand, slots = str(runs.get(row["name"], 0)), str(row["concurrency"])
    return [row["name"], worker_state(row), ",".join(row["queues"]), in_hand, slots, row["version"]]
