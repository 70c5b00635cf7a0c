"""`python -m benchmarks`: all measurements of a run, as tables, and in benchmarks/results/ as JSON.

Ratios, not absolute times, are what to compare: the machine may be shared, so each figure stands beside a floor or another
system that was measured in the same run. CPU time stands beside the clock's where it can be told.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.bench import FULL, QUICK, Bench, NotInstalled, open_bench
from benchmarks.compaction import compaction
from benchmarks.contests import contest
from benchmarks.figures import Table, markdown
from benchmarks.floors import floors
from benchmarks.instructions import instructions
from benchmarks.latency import latency
from benchmarks.recovery import recovery
from benchmarks.steps import step_cost
from benchmarks.temporal import temporal
from benchmarks.views import views
from benchmarks.waiting import waiting

RESULTS = Path(__file__).parent / "results"
PEERS = Path(__file__).parents[1] / ".venv-peers"

Measurement = Callable[[Bench], Table | list[Table]]
MEASUREMENTS: dict[str, Measurement] = {
    "floors": floors,
    "steps": step_cost,
    "contest": contest,
    "waiting": waiting,
    "latency": latency,
    "recovery": recovery,
    "compaction": compaction,
    "pages": views,
}
APART: dict[str, Measurement] = {"temporal": temporal, "instructions": instructions}  # only when asked for


def main(arguments: list[str] | None = None) -> int:
    """Prints each table when it is there. 1 where a target was missed, unless the run was a quick one."""
    options = _parse(arguments)
    sizes = QUICK if options.quick else FULL
    before, began = machine.load(), time.monotonic()
    tables: list[Table] = []
    with open_bench(sizes, options.peers) as bench:
        described = machine.describe(bench.folder)
        print(f"{machine.line(described)}\nload before: {before}\n", flush=True)
        for name in options.only or MEASUREMENTS:
            print(f"… {name}", file=sys.stderr, flush=True)
            try:
                found = (MEASUREMENTS | APART)[name](bench)
            except NotInstalled as error:
                sys.stderr.write(f"error: {error}\n")
                return 2
            for table in found if isinstance(found, list) else [found]:
                print("\n".join(markdown(table)) + "\n", flush=True)
                tables.append(table)
    seconds, after = time.monotonic() - began, machine.load()
    print(f"load after: {after}; {seconds:.0f} s in all")
    data = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"), "quick": options.quick, "seconds": round(seconds, 1),
        "machine": described, "load_before": before, "load_after": after,
        "tables": [table.as_dict() for table in tables],
    }  # fmt: skip
    _write(options.json, data)
    missed = [
        f"{table.title}: {figure.name}: {figure.target.text}"
        for table in tables
        for figure in table.figures
        if figure.target is not None and not figure.target.reached
    ]
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed and not options.quick else 0


def _write(file: Path | None, data: dict[str, Any]) -> None:
    if file is None:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{data['at'].replace(':', '')}.json"
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {file}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that everything works; figures mean nothing"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=MEASUREMENTS | APART,
        metavar="NAME",
        help=f"of {', '.join(MEASUREMENTS | APART)}",
    )
    parser.add_argument(
        "--json", type=Path, help="where to write the figures; default: a new file in benchmarks/results/"
    )
    parser.add_argument("--peers", type=Path, default=PEERS, help="the environment with the other systems")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
