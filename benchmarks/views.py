"""The page's views of a large installation, at the server, on both databases."""

from __future__ import annotations

from benchmarks.bench import BACKENDS, NAMES, Bench
from benchmarks.figures import Figure, Table, Target, compared
from benchmarks.floors import timed
from benchmarks.pages import page_times
from storage.engine import Database

LIMIT_MS = 50.0


def views(bench: Bench) -> Table:
    """The whole way of a request within this process, from the gate to the HTML, beside the database's shortest answer."""
    jobs, events = bench.sizes.listed_jobs, bench.sizes.listed_events
    figures = []
    for backend in BACKENDS[: 1 if bench.sizes.few else None]:
        url = bench.new_database(backend)
        found = page_times(bench.new_folder("pages"), jobs_count=jobs, events=events, url=url)
        floor = Figure(f"{NAMES[backend]}: the shortest query", "ms", _reads(url, bench.sizes.floor_samples))
        figures.append(floor)
        for view in found:
            figure = Figure(f"{NAMES[backend]}: {view.view}", "ms", view.times)
            figures.append(
                compared(figure, floor, Target.at_most(figure.median, LIMIT_MS, f"≤ {LIMIT_MS:g} ms"))
            )
    return Table(f"The page with {jobs:,} jobs, one of them with {events:,} events: first pages", figures)


def _reads(url: str, count: int) -> list[float]:
    database = Database(url)

    def read() -> None:
        with database.read() as conn:
            conn.exec_driver_sql("SELECT 1")

    times = timed(read, count)
    database.close()
    return times
