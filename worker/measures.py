"""Counting in memory, for the heartbeat to add to the database now and then: a measure costs a step microseconds."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict

from jobs.measures import Measure
from storage.engine import Database
from storage.measures import Series, add_measures

FLUSH_SECONDS = 5.0
MOST_SERIES = 200  # of one measure in a process: names that models or submitters make up end there
OTHER = "other"


class Measures:
    """What a process counted since it last told the database. Thread-safe.

    A process that is killed loses what it counted in the last seconds. Where the database is away, nothing is lost; a
    connection that is cut in the very commit may have it counted twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grown: dict[Series, float] = defaultdict(float)
        self._known: dict[str, set[tuple[str, ...]]] = {}
        self._flushed_at = time.monotonic()

    def count(self, measure: Measure, *values: str, by: float = 1.0) -> None:
        """Adds to a counter; `values` of its labels, in their order."""
        with self._lock:
            self._grown[Series(measure.name, self._labels(measure, values))] += by

    def observe(self, measure: Measure, seconds: float, *values: str) -> None:
        """Adds to a histogram."""
        place = bisect_left(measure.buckets, seconds)
        below = str(measure.buckets[place]) if place < len(measure.buckets) else "+Inf"
        with self._lock:
            labels = self._labels(measure, values)
            self._grown[Series(f"{measure.name}_bucket", (*labels, ("le", below)))] += 1
            self._grown[Series(f"{measure.name}_sum", labels)] += seconds

    def flush(self, db: Database, *, at_once: bool = False) -> None:
        """Tells the database, if the last time is long enough ago. Raises StorageError: it is told next time."""
        with self._lock:
            if not at_once and time.monotonic() - self._flushed_at < FLUSH_SECONDS:
                return
            grown, self._grown = self._grown, defaultdict(float)
            self._flushed_at = time.monotonic()
        try:
            add_measures(db, grown)
        except BaseException:
            with self._lock:
                for series, value in grown.items():
                    self._grown[series] += value
            raise

    def _labels(self, measure: Measure, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        known = self._known.setdefault(measure.name, set())
        if values not in known:
            if len(known) >= MOST_SERIES:
                values = (OTHER,) * len(values)
            known.add(values)
        return tuple(zip(measure.labels, values, strict=True))
