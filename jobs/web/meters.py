"""How full a job's context is, as its row says: what the meters of the page show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MARKS = (70, 85, 95)  # percent: a warning; the agent is asked to come to an end; it is made to


@dataclass(frozen=True, slots=True)
class Meter:
    """A context's size in tokens, of what may be used of its window, and where it is made shorter."""

    tokens: int
    usable: int
    compact: int

    @property
    def percent(self) -> int:
        return min(self.tokens * 100 // self.usable, 999)

    @property
    def drawn(self) -> int:
        return min(self.percent, 100)

    @property
    def compact_percent(self) -> float:
        return round(min(self.compact * 100 / self.usable, 100.0), 1)

    @property
    def level(self) -> str:
        """ok, warn or bad."""
        return "ok" if self.percent < MARKS[0] else "warn" if self.percent < MARKS[1] else "bad"


def meter_of(row: Mapping[str, Any]) -> Meter | None:
    """Of a job's row; None while no reply has told of the window."""
    marks = row["context_marks"] or {}
    usable = marks.get("usable", 0)
    return Meter(row["context_tokens"], usable, marks.get("compact", 0)) if usable else None
