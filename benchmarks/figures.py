"""Figures, their table and their JSON: a median with its spread, and a ratio to something measured in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is to reach."""

    text: str
    reached: bool

    @classmethod
    def at_most(cls, value: float, limit: float, text: str) -> Target:
        return cls(text, value <= limit)

    @classmethod
    def at_least(cls, value: float, limit: float, text: str) -> Target:
        return cls(text, value >= limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: samples of one thing. `ratio` is its median beside `to`; `settings` is what a contestant ran with."""

    name: str
    unit: str
    samples: Sequence[float]
    ratio: float | None = None
    to: str = ""
    cpu_ms: float | None = None  # CPU of the processes measured, for each thing counted
    settings: str = ""
    target: Target | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and the 90th percentile; of fewer than ten samples the least and the greatest."""
        if len(self.samples) < 10:
            return min(self.samples), max(self.samples)
        tenths = statistics.quantiles(self.samples, n=10)
        return tenths[0], tenths[-1]

    def as_dict(self) -> dict[str, Any]:
        low, high = self.spread
        data: dict[str, Any] = {
            "name": self.name, "unit": self.unit, "median": self.median, "low": low, "high": high,
            "samples": len(self.samples), "ratio": self.ratio, "to": self.to, "cpu_ms": self.cpu_ms,
            "settings": self.settings, "target": None,
        }  # fmt: skip
        if self.target is not None:
            data["target"] = {"text": self.target.text, "reached": self.target.reached}
        return data


@dataclass(slots=True)
class Table:
    """What one measurement found. `notes` say what a reader must know, absent peers among it."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "figures": [figure.as_dict() for figure in self.figures],
            "notes": self.notes,
        }


def compared(figure: Figure, base: Figure, target: Target | None = None) -> Figure:
    """The figure with its ratio to the other's median."""
    return Figure(
        figure.name, figure.unit, figure.samples, figure.median / base.median, base.name,
        figure.cpu_ms, figure.settings, target or figure.target,
    )  # fmt: skip


HEADINGS = ("", "median", "spread", "CPU ms", "ratio", "target")


def markdown(table: Table) -> Iterator[str]:
    """The table as lines of Markdown that also read well in a terminal."""
    rows = [HEADINGS, *(_cells(figure) for figure in table.figures)]
    used = [at for at in range(len(HEADINGS)) if at == 0 or any(row[at] for row in rows[1:])]
    widths = {at: max(len(row[at]) for row in rows) for at in used}
    yield f"### {table.title}"
    yield ""
    for number, row in enumerate(rows):
        yield "| " + " | ".join(_padded(row[at], widths[at], at) for at in used) + " |"
        if number == 0:
            yield (
                "|" + "|".join("-" * (widths[at] + 1) + (":" if at in NUMBERS else "-") for at in used) + "|"
            )
    yield ""
    for settings in dict.fromkeys(figure.settings for figure in table.figures if figure.settings):
        names = "; ".join(figure.name for figure in table.figures if figure.settings == settings)
        yield f"- {names}: {settings}"
    for note in table.notes:
        yield f"- {note}"


NUMBERS = (1, 2, 3)


def _padded(cell: str, width: int, at: int) -> str:
    return cell.rjust(width) if at in NUMBERS else cell.ljust(width)


def _cells(figure: Figure) -> tuple[str, ...]:
    low, high = figure.spread
    ratio = "" if figure.ratio is None else f"{_number(figure.ratio)} × {figure.to}"
    target = "" if figure.target is None else f"{figure.target.text}: {_verdict(figure.target)}"
    return (
        figure.name,
        f"{_number(figure.median)} {figure.unit}",
        f"{_number(low)} to {_number(high)}" if len(figure.samples) > 1 else "",
        "" if figure.cpu_ms is None else _number(figure.cpu_ms),
        ratio,
        target,
    )


def _verdict(target: Target) -> str:
    return "reached" if target.reached else "missed"


def _number(value: float) -> str:
    """Three significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"
