"""Whether a series of samples is flat: a robust slope over its last two thirds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

SETTLED_AFTER = 1 / 3  # of the time: pools and caches fill before
LEAST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a measure may rise over the last two thirds: a share of its median, or an amount if that is more."""

    share: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Trend:
    """`rise`: by the slope, over the whole time looked at."""

    median: float
    rise: float
    allowed: float

    @property
    def grows(self) -> bool:
        return self.rise > self.allowed


def trend(times: Sequence[float], values: Sequence[float], allowance: Allowance) -> Trend:
    """The trend of the last two thirds. A single jump or a few outliers do not tilt it."""
    begin = times[0] + (times[-1] - times[0]) * SETTLED_AFTER
    points = [(at, value) for at, value in zip(times, values, strict=True) if at >= begin]
    if len(points) < LEAST_SAMPLES:
        raise ValueError(f"{len(points)} samples are too few for a trend")
    middle = statistics.median(value for _, value in points)
    rise = slope(points) * (points[-1][0] - points[0][0])
    return Trend(middle, rise, max(allowance.amount, allowance.share * abs(middle)))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between every two points (Theil and Sen)."""
    return statistics.median(
        (b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] != a[0]
    )
