"""How full a context may become, and what is due at which size. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

WARN, COMPACT, ASK_TO_END, FORCE, STOP = 0.70, 0.80, 0.85, 0.95, 0.99  # of what is usable of the window
UNKNOWN_COMPACT = 8_000  # where the window is not known
CEILING_SHARE = 0.9  # of a request that was refused as too long
RETRY_GROWTH = 1.1  # a compaction that did not help is tried again once the context has grown by so much
MOST_USELESS = 2  # compactions in a row


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in tokens. `usable` is the window less the room that is kept for the reply."""

    window: int
    usable: int
    warn: int
    compact: int
    ask_to_end: int
    force: int
    stop: int


def reserve_of(window: int, max_output: int | None) -> int:
    """Tokens kept for the reply: its limit where there is one, but never more than half the window."""
    return min(max_output or 0, window // 2)


@lru_cache(maxsize=1024)  # asked for several times a step, and hardly ever others
def limits(
    window: int, max_output: int | None, threshold: int | None, *, known: bool, ceiling: int
) -> Limits:
    """The limits for a window. `threshold`: the operator's, for compactions; it stays below the request to end.

    `ceiling`: the size of a request that was refused although it should have fitted, 0 where there was none.
    """
    usable = window - reserve_of(window, max_output)
    if ceiling:
        usable = min(usable, int(ceiling * CEILING_SHARE))
    ask_to_end = int(usable * ASK_TO_END)
    default = int(usable * COMPACT) if known else min(UNKNOWN_COMPACT, int(usable * COMPACT))
    return Limits(
        window=window,
        usable=usable,
        warn=int(usable * WARN),
        compact=max(min(threshold or default, ask_to_end - 1), 1),
        ask_to_end=ask_to_end,
        force=int(usable * FORCE),
        stop=int(usable * STOP),
    )


def worth_trying(tokens: int, useless: int, useless_at: int) -> bool:
    """The breaker: whether another compaction may be tried after so many that did not help."""
    return useless == 0 or (useless < MOST_USELESS and tokens >= useless_at * RETRY_GROWTH)
