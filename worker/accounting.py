"""How large a context is: pure arithmetic, the same cost for a conversation of any length.

Two numbers are kept on the job's row. The *estimate* adds up what the estimator says of each row as it is appended. The
*tokens* are what we believe: the endpoint's own count of the last request where that is plausible, and what was
appended since. Their ratio corrects later estimates. All of it is committed with the rows it speaks of, so that a
resumed run knows what the last one knew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from worker.model.types import Usage

LEAST_RATIO, MOST_RATIO = 0.25, 4.0  # of measured to estimated tokens: beyond them the count is not believed
SHRUNK = 0.9  # of the last measurement: a context that only grew cannot have become smaller
SLACK = 200  # tokens that a chat template may add to a tiny request


@dataclass(frozen=True, slots=True)
class Size:
    """A context's size. `measured`: as the endpoint last counted a request of it; 0 where it did not since a change."""

    tokens: int = 0
    estimate: int = 0
    measured: int = 0
    ratio: float = 1.0

    def grown(self, estimate: int) -> Size:
        """With `estimate` more tokens, by the estimator."""
        return replace(
            self, tokens=self.tokens + round(estimate * self.ratio), estimate=self.estimate + estimate
        )

    def replaced(self, estimate: int) -> Size:
        """Another context of this estimate: what was measured of the old one is void, the ratio is not."""
        return replace(self, tokens=round(estimate * self.ratio), estimate=estimate, measured=0)

    def for_another_model(self) -> Size:
        """Nothing that one model's endpoint counted says much of another's."""
        return Size(self.estimate, self.estimate)

    def counted(self, usage: Usage) -> Size:
        """After a reply: the request was as large as the endpoint says, where that can be."""
        count = plausible(self, usage)
        if count is None:
            return self
        ratio = min(max(count / max(self.estimate, 1), LEAST_RATIO), MOST_RATIO)
        return Size(count, self.estimate, count, ratio)


def plausible(size: Size, usage: Usage) -> int | None:
    """The endpoint's count of the request, if it can be: None for missing or zero, and for what a context of this size
    cannot have been. Some endpoints leave the cached tokens out: they are added where only that makes sense."""
    if usage.prompt_tokens is None or usage.prompt_tokens <= 0:
        return None
    least = max(LEAST_RATIO * size.estimate - SLACK, SHRUNK * size.measured)
    most = MOST_RATIO * size.estimate + SLACK
    counts = (usage.prompt_tokens, usage.prompt_tokens + (usage.cached_tokens or 0))
    return next((count for count in counts if least <= count <= most), None)


@dataclass(frozen=True, slots=True)
class Marks:
    """What was done about a context's size, so that each thing is done once. Kept on the job's row."""

    model: str | None = None  # whose endpoint the size was measured by
    form: str | None = None  # in which its messages last went out; None: none did yet
    fixed: int = 0  # estimated tokens that no compaction can free: system, head, schemas
    warned: bool = False
    asked_to_wrap_up: bool = False
    overflowed: bool = False  # the endpoint refused the last request as too long
    ceiling: int = 0  # tokens of a request that was refused although it should have fitted; 0: none was
    useless: int = 0  # compactions in a row that did not help
    useless_at: int = 0  # tokens at the last of them
    usable: int = (
        0  # tokens of the window that may be filled, and where compaction begins, as of the last reply
    )
    compact: int = 0
    todos_due: bool = False  # the open todos are to be shown once: a compaction took their list away

    def rearmed(self, **changes: Any) -> Marks:
        """Those of a context that has become smaller: every threshold may be met again."""
        kept = replace(self, warned=False, asked_to_wrap_up=False, useless=0, useless_at=0)
        return replace(kept, **changes)

    def of_new_visit(self, fixed: int) -> Marks:
        """Those of an empty context. What was learned of the model stays."""
        kept = Marks(model=self.model, ceiling=self.ceiling, usable=self.usable, compact=self.compact)
        return replace(kept, fixed=fixed)


_DEFAULTS = asdict(Marks())


def size_of(row: Mapping[str, Any]) -> Size:
    """The size as it stands on the job's row."""
    return Size(row["context_tokens"], row["context_estimate"], row["measured_tokens"], row["usage_ratio"])


def marks_of(row: Mapping[str, Any]) -> Marks:
    """The marks as they stand on the job's row."""
    return Marks(**{name: value for name, value in (row["context_marks"] or {}).items() if name in _DEFAULTS})


def size_columns(size: Size) -> dict[str, Any]:
    """The columns of the job's row that hold the size."""
    return {
        "context_tokens": size.tokens,
        "context_estimate": size.estimate,
        "measured_tokens": size.measured,
        "usage_ratio": round(size.ratio, 4),
    }


def marks_column(marks: Marks) -> dict[str, Any]:
    """The column that holds the marks: only what differs from a context about which nothing was done."""
    values = ((name, getattr(marks, name)) for name in _DEFAULTS)
    return {"context_marks": {name: value for name, value in values if value != _DEFAULTS[name]} or None}
