"""`python -m benchmarks`: prints a table, and writes the figures to benchmarks/results.json.

Ratios, not absolute times, are what to compare: the machine may be shared, and the floor (a bare commit with the same
durability on the same disk) is taken in the same run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.floors import sqlite_commits
from benchmarks.jobs_through_celery import TenStepJobs, ten_step_jobs
from benchmarks.steps import step_times

RESULTS = Path(__file__).parent / "results.json"
STEPS = 200
COMMITS = 200
SMALL, LARGE = 100, 10_000  # messages in the transcript before the measured steps


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. Times are medians in milliseconds."""

    name: str
    value: float
    unit: str
    ratio: float
    to: str
    spread: str


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sostenuto-bench-") as folder:
        figures = measure(Path(folder))
    for line in table(figures):
        print(line)
    machine = {
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    RESULTS.write_text(
        json.dumps({"machine": machine, "figures": [asdict(f) for f in figures]}, indent=2) + "\n"
    )
    print(f"\nwritten to {RESULTS}")
    return 0


def measure(folder: Path) -> list[Figure]:
    """All figures; a few tens of seconds."""
    floor = sqlite_commits(folder / "floor.db", COMMITS)
    small = step_times(folder / "small", SMALL, STEPS)
    large = step_times(folder / "large", LARGE, STEPS)
    jobs: TenStepJobs = ten_step_jobs(folder / "jobs")
    bare = statistics.median(floor)
    commits_a_second = 1000 / bare
    return [
        _timed("bare SQLite commit, synchronous=FULL", floor, bare, "itself"),
        _timed(f"a step with one tool call at {SMALL} messages", small, 2 * bare, "two bare commits"),
        _timed(f"the same at {LARGE:,} messages", large, statistics.median(small), f"at {SMALL} messages"),
        Figure(
            f"ten-step jobs through Celery ({jobs.jobs} jobs, {jobs.workers} workers)",
            jobs.jobs_a_second,
            "jobs/s",
            jobs.jobs_a_second * jobs.commits_a_job / commits_a_second,
            "bare commits a second",
            f"{jobs.commits_a_job} commits a job",
        ),
    ]


def _timed(name: str, times: Sequence[float], base: float, to: str) -> Figure:
    median = statistics.median(times)
    low, high = statistics.quantiles(times, n=10)[0], statistics.quantiles(times, n=10)[-1]
    return Figure(name, median, "ms", median / base, to, f"{low:.2f} to {high:.2f}")


def table(figures: Sequence[Figure]) -> list[str]:
    """The figures as lines of text."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'':{width}}  {'median':>12}   ratio"]
    for figure in figures:
        value = f"{figure.value:.2f} {figure.unit}"
        lines.append(
            f"{figure.name:{width}}  {value:>12}   {figure.ratio:.2f} × {figure.to} ({figure.spread})"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
