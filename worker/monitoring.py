"""What monitors such as Flower are told of a run: its job, piece and movement, and how it ended. Never more than names.

A Celery message only says that a queue has work, so the job that it was answered with is known after the claim alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from storage.masking import mask

SUMMARISING = "summarising"  # beside the job's states: its final summary is being written


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a run. `doing` is the job's state while the run holds it; `left` what it was left as, and why."""

    doing: str
    job_id: str
    piece: str
    movement: str
    left: str | None = None

    @property
    def arguments(self) -> str:
        """As Celery writes a task's positional arguments."""
        return repr((self.job_id,))

    @property
    def details(self) -> str:
        """As Celery writes a task's keyword arguments."""
        shown = {"movement": self.movement, "piece": self.piece}
        return mask(repr(shown if self.left is None else {"left": self.left, **shown}))


Show = Callable[[Sight], None]


def show_nobody(_: Sight) -> None:
    """Where no monitor can be told, as in a process without Celery."""


def sight(doing: str, row: Mapping[str, Any], left: str | None = None) -> Sight:
    """Of a job's row as the run knows it."""
    return Sight(doing, row["id"], row["piece"], row["movement"], left)
