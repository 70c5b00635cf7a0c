"""Text for the model: made clean, and cut so that it fits a budget without losing track of where it was cut."""

from __future__ import annotations

import re

from storage.text import clean_text
from worker.tokens import estimate_tokens

_BLOCK = 8192
_ESCAPES = re.compile(
    r"""
    \x1b\[ [0-?]{0,256} [ -/]{0,16} [@-~]?             # CSI: colours, cursor movement
  | \x1b[\]PX^_] [^\x07\x1b\x9c]{0,4096} (?:\x07|\x1b\\|\x9c)?  # OSC and other strings: titles, links, clipboard
  | \x1b [ -/]{0,16} [0-~]?                            # the short ones
  | \x9b [0-?]{0,256} [ -/]{0,16} [@-~]?               # CSI as one character
  | [\x80-\x9a\x9c-\x9f]                               # the other C1 controls
  | [\x01-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]          # C0 controls but tab and line ends
    """,
    re.VERBOSE,
)


def strip_terminal(text: str) -> str:
    """`text` without escape sequences and control characters, in linear time; tabs and line ends stay."""
    return _ESCAPES.sub("", text)


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


def one_line(text: str, most: int = 200) -> str:
    """`text` for a message: one clean line of at most `most` characters."""
    line = " ".join(strip_terminal(clean_text(text[: most * 4])).split())
    return line if len(line) <= most else line[: most - 1] + "…"
