"""Text for the model: made clean, and cut so that it fits a budget without losing track of where it was cut."""

from __future__ import annotations

from worker.tokens import estimate_tokens

_BLOCK = 8192


def mend_surrogates(text: str) -> str:
    """`text` as it can be encoded: halves of a pair are joined, a lone surrogate becomes U+FFFD. NUL stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def prefix_that_fits(text: str, budget: int) -> int:
    """How many characters of `text`, from its start, fit into `budget` tokens: at least one, so that reading on
    always moves forward. Linear in the length of what fits."""
    room, end = budget, 0
    while end < len(text):
        block = text[end : end + _BLOCK]
        cost = estimate_tokens(block)
        if cost > room:
            end += _most_that_fits(block, room)
            break
        room -= cost
        end += len(block)
    # The estimate of the whole may differ from the sum of its blocks by their rounding.
    while end > 1 and estimate_tokens(text[:end]) > budget:
        end -= max(end // 100, 1)
    return min(max(end, 1), len(text))


def suffix_that_fits(text: str, budget: int) -> int:
    """How many characters of `text`, from its end, fit into `budget` tokens; never more than 16 a token."""
    end = text[-budget * 16 :] if budget > 0 else ""
    return _most_that_fits(end, budget, from_end=True)


def _most_that_fits(text: str, budget: int, *, from_end: bool = False) -> int:
    """The largest number of characters that fit, found by halving: fewer always cost less, or nearly so."""
    if estimate_tokens(text) <= budget:
        return len(text)
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        if estimate_tokens(text[-middle:] if from_end else text[:middle]) <= budget:
            low = middle
        else:
            high = middle
    return low


def cut_to_budget(text: str, budget: int, notice: str) -> str:
    """`text` if it fits, else its head followed by `notice`; for results that nobody cut with more care."""
    if estimate_tokens(text) <= budget:
        return text
    room = max(budget - estimate_tokens(notice) - 2, 1)
    return f"{text[: prefix_that_fits(text, room)]}\n{notice}"
