"""Spans and moments of time as people write them: `90`, `45s`, `30m`, `1h30m`, `2d`; `+30m`, `08:00`, ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHAPE = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of a span; a bare number is seconds. Raises ValueError with what is allowed."""
    cleaned = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", cleaned, re.ASCII):
        return float(cleaned)
    if not _SHAPE.fullmatch(cleaned):
        raise ValueError(f"{text!r} is not a span of time; allowed are 90, 45s, 30m, 1h30m, 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(cleaned))


def format_duration(seconds: float) -> str:
    """A span in at most two units: `45s`, `3m 20s`, `2h 5m`, `3d 4h`."""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{smaller_unit}" if rest else "")
    raise AssertionError("a whole number of seconds from 60 on fits one of the units")


def parse_moment(text: str, now: datetime | None = None) -> float:
    """Epoch seconds of `+30m`, `08:00` (the next one) or an ISO 8601 time; local time where no zone is given.

    Raises ValueError with what is allowed.
    """
    now = now or datetime.now().astimezone()
    cleaned = text.strip()
    if cleaned.startswith("+"):
        return now.timestamp() + parse_duration(cleaned[1:])
    try:
        if re.fullmatch(r"\d\d:\d\d(:\d\d)?", cleaned, re.ASCII):
            return _next(time.fromisoformat(cleaned), now)
        return datetime.fromisoformat(cleaned).timestamp()  # without a zone: local, with its summer time
    except (ValueError, OverflowError):
        allowed = "2026-12-24T08:00, 2026-12-24T08:00Z, 08:00, +30m"
        raise ValueError(f"{text!r} is not a time; allowed are {allowed}") from None


def _next(clock: time, now: datetime) -> float:
    moment = datetime.combine(now.date(), clock)
    if moment <= now.replace(tzinfo=None):
        moment += timedelta(days=1)
    return moment.timestamp()
