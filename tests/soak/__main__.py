"""`python -m tests.soak --hours 1`: steady load for so long; says what grows, and exits with 1 where something does."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.resilience.bench import READY
from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK
from tests.soak.measures import allowance, sample
from tests.soak.plot import svg
from tests.soak.trend import SETTLED_AFTER, trend
from tests.storm.brokers import BROKERS
from tests.storm.mind import Mind
from tests.storm.site import DATABASES, Site
from tests.storm.traffic import Mix, Traffic

WORKERS, CONCURRENCY = 2, 8
LOAD = Mix(open_jobs=12, comment=0.02, pause=0.005, cancel=0.001, jobs_a_second=0.4)
# As in production; only the window is small, so that there are compactions.
AS_IN_PRODUCTION = {
    "SOSTENUTO_LEASE_SECONDS": "15",
    "SOSTENUTO_SLICE_STEPS": "200",
    "SOSTENUTO_SWEEP_SECONDS": "1",
    "SOSTENUTO_GRACE_SECONDS": "8",
    "SOSTENUTO_MAX_ATTEMPTS": "5",
    "SOSTENUTO_EXCHANGES_KEEP_DAYS": "3",
}


def main() -> int:
    given = _parse()
    given.folder.mkdir(parents=True, exist_ok=True)
    session = ServerSession()
    os.environ[MARK] = session.mark
    title = f"{given.hours:g} h of steady load on {given.database} and {given.broker}"
    times: list[float] = []
    series: dict[str, list[float]] = {}
    try:
        count = round(given.hours * 3600 / given.every)
        for at, found in soak(session, count, given.every, given.database, given.broker):
            print(f"{at / 60:6.1f} min: {found['jobs']:.0f} jobs", flush=True)
            times.append(at)
            for name, value in found.items():
                series.setdefault(name, []).append(value)
            write(given.folder, f"soak-{given.database}", title, times, series)  # what is there is kept
        growing = judge(times, series)
    finally:
        session.close()
    print("flat" if not growing else f"grows: {', '.join(growing)}")
    return 1 if growing else 0


def soak(
    session: ServerSession, count: int, every: float, database: str, broker: str
) -> Iterator[tuple[float, dict[str, float]]]:
    """Runs the load for so many samples, each with its time in seconds."""
    site = Site(session, database, broker, Mind(), AS_IN_PRODUCTION)
    try:
        site.open_slots(WORKERS, CONCURRENCY)
        for slot in site.slots:
            slot.process.wait_for_log(READY, 180)
        pids = [slot.process.pid for slot in site.slots]
        traffic = Traffic(site, 1, LOAD)
        traffic.start()
        began, over = time.monotonic(), threading.Event()
        for _ in range(count):
            over.wait(every - (time.monotonic() - began) % every)
            yield time.monotonic() - began, sample(site)
            site.endpoint.requests.clear()  # this program's own memory is not measured, but it is finite
            site.endpoint.paths.clear()
        traffic.stop()
        assert [slot.process.pid for slot in site.slots] == pids, "a worker ended by itself"
        site.endpoint.assert_clean()
    finally:
        site.close()


def write(folder: Path, name: str, title: str, times: list[float], series: Mapping[str, list[float]]) -> None:
    """The samples as CSV, and the plot."""
    minutes = [at / 60 for at in times]
    with (folder / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["minutes", *series])
        rows.writerows(
            [f"{at:.2f}", *(f"{series[measure][number]:.6g}" for measure in series)]
            for number, at in enumerate(minutes)
        )
    (folder / f"{name}.svg").write_text(svg(title, minutes, series, SETTLED_AFTER))


def judge(times: list[float], series: Mapping[str, list[float]]) -> list[str]:
    """Prints the trend of each measure; returns those that grow."""
    growing = []
    width = max(map(len, series))
    for name, values in series.items():
        found = trend(times, values, allowance(name))
        print(f"  {name:{width}}  {found.median:10.2f}  {found.rise:+9.2f} (allowed {found.allowed:.2f})")
        if found.grows:
            growing.append(name)
    return growing


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two samples")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument(
        "--broker", choices=[name for name in BROKERS if name != "rabbitmq"], default="valkey"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="for the CSV and the plot")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
