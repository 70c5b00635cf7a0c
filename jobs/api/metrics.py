"""Metrics in Prometheus' text format: the whole installation's from the database, the requests' of this process.

Names of labels are bounded: states, methods, statuses, and routes as they are written in the document, never as asked for.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from jobs.installation import Installation
from jobs.measures import MEASURES, Measure
from storage import statistics
from storage.masking import mask
from storage.measures import Series, read_measures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOAD_SECONDS = 2.0  # as old as figures may be: however often it is asked, the database is not
SPEND_SECONDS = 30.0
FRESH_SECONDS = 60.0  # as for the list of workers
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
T = TypeVar("T")


class Metrics:
    """Counts the requests of an application, and tells them with the installation's figures."""

    def __init__(self, installation: Installation) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "sostenuto_http_requests", "Requests of this server's process", labels, registry=self._registry
        )
        self._seconds = Histogram(
            "sostenuto_http_request_seconds",
            "Time until an answer begins",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        installation.settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._registry.register(_Figures(installation))

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """An answer has begun. `route` None: the path is none of ours."""
        method, route = method if method in METHODS else "other", route or "none"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """Everything, for a scrape. Raises StorageError where the database is away."""
        return generate_latest(self._registry)


class _Remembered(Generic[T]):
    """A figure that is asked for again when it is too old; by one thread, while others wait for its answer."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._value: T | None = None
        self._until = 0.0
        self._mutex = threading.Lock()

    def __call__(self) -> T:
        with self._mutex:
            if self._value is None or time.monotonic() >= self._until:
                self._value = self._ask()
                self._until = time.monotonic() + self._seconds
            return self._value


class _Figures(Collector):
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._load = _Remembered(lambda: statistics.load(installation.db, FRESH_SECONDS), LOAD_SECONDS)
        self._measures = _Remembered(lambda: read_measures(installation.db), LOAD_SECONDS)
        self._spend = _Remembered(lambda: statistics.spend(installation.db), SPEND_SECONDS)

    def describe(self) -> list[Family]:
        return []  # else the database would be asked when the application is made

    def collect(self) -> Iterator[Family]:
        load = self._load()
        spend = self._spend()
        states = GaugeMetricFamily("sostenuto_jobs", "Stored jobs by state", labels=["state"])
        for state, count in load.jobs.items():
            states.add_metric([state], count)
        yield states
        depth = GaugeMetricFamily("sostenuto_queue_depth", "Due jobs without a worker", labels=["queue"])
        age = GaugeMetricFamily(
            "sostenuto_queue_age_seconds", "How long the longest due of them has been due", labels=["queue"]
        )
        for queue, (count, seconds) in load.queues.items():
            depth.add_metric([queue], count)
            age.add_metric([queue], seconds)
        yield depth
        yield age
        yield GaugeMetricFamily("sostenuto_jobs_held", "Due jobs that a limit holds", load.held)
        yield GaugeMetricFamily("sostenuto_runs", "Runs that hold a lease", load.runs)
        yield GaugeMetricFamily("sostenuto_workers", "Worker processes seen in the last minute", load.workers)
        yield GaugeMetricFamily("sostenuto_worker_slots", "Agents that they run at once", load.slots)
        sandboxes = GaugeMetricFamily(
            "sostenuto_workers_sandbox", "Worker processes by sandbox level", labels=["level"]
        )
        for level, number in load.sandboxes.items():
            sandboxes.add_metric([level], number)
        yield sandboxes
        cooling = GaugeMetricFamily(
            "sostenuto_endpoint_cooldown_seconds",
            "How long an endpoint is left alone yet",
            labels=["endpoint"],
        )
        for endpoint, left in load.cooldowns.items():
            cooling.add_metric([mask(endpoint)], left)
        yield cooling
        free = shutil.disk_usage(self._installation.settings.data_dir).free
        yield GaugeMetricFamily("sostenuto_data_free_bytes", "Free space where the data folder is", free)
        yield from _counted(self._measures())
        # Gauges: the sums are over the jobs that are stored, and shrink when old ones are deleted.
        yield GaugeMetricFamily("sostenuto_jobs_steps", "Steps of all stored jobs", spend.steps)
        tokens = GaugeMetricFamily("sostenuto_jobs_tokens", "Tokens of all stored jobs", labels=["kind"])
        tokens.add_metric(["prompt"], spend.prompt_tokens)
        tokens.add_metric(["completion"], spend.completion_tokens)
        yield tokens
        yield GaugeMetricFamily("sostenuto_jobs_cost", "Cost of all stored jobs, as far as prices are known", spend.cost)  # fmt: skip
        sent = CounterMetricFamily("sostenuto_wake_ups", "Wake-ups sent by this process", labels=["outcome"])
        wakeups = self._installation.wakeups
        sent.add_metric(["delivered"], wakeups.delivered)
        sent.add_metric(["failed"], wakeups.failed)
        yield sent


def _counted(sums: Mapping[Series, float]) -> Iterator[Family]:
    """What the workers counted. A counter without labels is told from the first scrape on."""
    for measure in MEASURES:
        if measure.buckets:
            yield _histogram(measure, sums)
            continue
        counter = CounterMetricFamily(measure.name, measure.help, labels=measure.labels)
        found = {s.labels: value for s, value in sums.items() if s.name == measure.name}
        for labels, value in (found or ({} if measure.labels else {(): 0.0})).items():
            counter.add_metric([text for _, text in labels], value)
        yield counter


def _histogram(measure: Measure, sums: Mapping[Series, float]) -> HistogramMetricFamily:
    """Stored are the observations of each bucket alone: a histogram's buckets hold those below, too."""
    family = HistogramMetricFamily(measure.name, measure.help, labels=measure.labels)
    bounds = [*map(str, measure.buckets), "+Inf"]
    for series, total in sums.items():
        if series.name == f"{measure.name}_sum":
            single = [
                sums.get(Series(f"{measure.name}_bucket", (*series.labels, ("le", b))), 0.0) for b in bounds
            ]
            family.add_metric(
                [text for _, text in series.labels], list(zip(bounds, accumulate(single), strict=True)), total
            )
    return family
