"""Counting in memory, for the heartbeat to add to the database now and then: a measure costs a step microseconds."""

from __future__ import annotations

import math
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
Values = tuple[str, ...]  # of a measure's labels, in their order


class Measures:
    """What a process counted since it last told the database. Thread-safe.

    A process that is killed loses what it counted in the last seconds. Where the database is away, nothing is lost; a
    connection that is cut in the very commit may have it counted twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measures: dict[str, Measure] = {}
        self._counted: dict[tuple[str, Values], float] = defaultdict(float)
        self._observed: dict[tuple[str, Values, float], int] = defaultdict(int)  # by the bucket's upper bound
        self._seconds: dict[tuple[str, Values], float] = defaultdict(float)
        self._owed: dict[Series, float] = defaultdict(float)  # to the database
        self._known: dict[str, set[Values]] = {}
        self._flushed_at = time.monotonic()

    def count(self, measure: Measure, *values: str, by: float = 1.0) -> None:
        """Adds to a counter; `values` of its labels, in their order."""
        with self._lock:
            self._measures[measure.name] = measure
            self._counted[measure.name, values] += by

    def observe(self, measure: Measure, seconds: float, *values: str) -> None:
        """Adds to a histogram."""
        place = bisect_left(measure.buckets, seconds)
        below = measure.buckets[place] if place < len(measure.buckets) else math.inf
        with self._lock:
            self._measures[measure.name] = measure
            self._observed[measure.name, values, below] += 1
            self._seconds[measure.name, values] += seconds

    def flush(self, db: Database, *, at_once: bool = False) -> None:
        """Tells the database, if the last time is long enough ago. Raises StorageError: it is told next time."""
        with self._lock:
            if not at_once and time.monotonic() - self._flushed_at < FLUSH_SECONDS:
                return
            self._sort()
            grown, self._owed = self._owed, defaultdict(float)
            self._flushed_at = time.monotonic()
        try:
            add_measures(db, grown)
        except BaseException:
            with self._lock:
                for series, value in grown.items():
                    self._owed[series] += value
            raise

    def _sort(self) -> None:
        """Puts what was counted into series: not when it is counted, which steps wait for."""
        for (name, values), value in self._counted.items():
            self._owed[Series(name, self._labels(name, values))] += value
        for (name, values, below), number in self._observed.items():
            told = "+Inf" if below == math.inf else str(below)
            self._owed[Series(f"{name}_bucket", (*self._labels(name, values), ("le", told)))] += number
        for (name, values), seconds in self._seconds.items():
            self._owed[Series(f"{name}_sum", self._labels(name, values))] += seconds
        for counted in (self._counted, self._observed, self._seconds):
            counted.clear()

    def _labels(self, name: str, values: Values) -> tuple[tuple[str, str], ...]:
        known = self._known.setdefault(name, set())
        if values not in known:
            if len(known) >= MOST_SERIES:
                values = (OTHER,) * len(values)
            known.add(values)
        return tuple(zip(self._measures[name].labels, values, strict=True))
