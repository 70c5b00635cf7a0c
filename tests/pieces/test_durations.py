"""Spans of time as people write them."""

from __future__ import annotations

import pytest

from jobs.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("45s", 45),
        ("30m", 1800),
        ("1h30m", 5400),
        (" 2D ", 172_800),
        ("1.5h", 5400),
        ("1w", 604_800),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5 m", "m", "1h30", "１h", "nan", "1e9"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="is not a span of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.42, "0.4s"),
        (45.4, "45s"),
        (60, "1m"),
        (200, "3m 20s"),
        (7500, "2h 5m"),
        (273_600, "3d 4h"),
    ],
)
def test_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
