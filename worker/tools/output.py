"""What a command prints, however much: its head and its tail in bounded memory, redrawn lines collapsed."""

from __future__ import annotations

from collections.abc import Callable

from jobs.plain_text import strip_terminal
from storage.text import clean_text
from worker.tokens import estimate_tokens
from worker.tools.sniff import CONTINUATION, whole_characters
from worker.tools.text import prefix_that_fits, suffix_that_fits

_LONGEST_PENDING = 1 << 16
_NOTICE_TOKENS = 100
_HEAD_SHARE = 0.75
_KEPT = "{kept}: Read or Grep that, or use head, tail, awk or sed -n on it"
_NOT_KEPT = "Run it again with head, tail, grep, awk or sed -n, or send its output to a file and Read that"


class Output:
    """Takes bytes as they come. Memory is bounded by the budget, not by what is printed."""

    def __init__(self, budget: int) -> None:
        self._budget = max(budget - _NOTICE_TOKENS, 20)
        self._head_most = self._budget * 16  # bytes a token, more than any real text has
        self._tail_most = self._budget * 8
        self._head = bytearray()
        self._tail = bytearray()
        self._line = b""  # what follows the last line end
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        data = self._line + data
        cut = data.rfind(b"\n") + 1
        if cut:
            self._keep(_collapse(data[:cut]))
        rest = data[cut:]
        # A carriage return redraws the line; the last one may still turn out to be half of a CRLF.
        rest = rest[rest.rfind(b"\r", 0, len(rest) - 1) + 1 :] if b"\r" in rest else rest
        if len(rest) > _LONGEST_PENDING:
            self._keep(rest)
            rest = b""
        self._line = rest

    def text(self, keep: Callable[[], str | None] = lambda: None) -> str:
        """All of it within the budget: clean, or its head, what was left out, and its tail.

        `keep` is called where something is left out, and returns where all of it is, in words.
        """
        self._keep(self._line.rstrip(b"\r"))
        self._line = b""
        if self._dropped:
            first = _clean(bytes(self._head[: whole_characters(self._head)]))
            last = _clean(bytes(self._tail.lstrip(CONTINUATION)))
        else:
            first = last = _clean(bytes(self._head + self._tail))
            if estimate_tokens(first) <= self._budget:
                return first
        for_head = int(self._budget * _HEAD_SHARE)
        head = prefix_that_fits(first, for_head)
        tail = len(last) - suffix_that_fits(last, self._budget - for_head)
        if not self._dropped:
            tail = max(tail, head)
        between = first[head:] + last[:tail] if self._dropped else first[head:tail]
        left_out = f"{self._dropped + len(between.encode())} bytes are left out here"
        kept = keep()
        notice = _KEPT.format(kept=kept) if kept else _NOT_KEPT
        return f"{first[:head]}\n[cut: {left_out}. {notice}]\n{last[tail:]}"

    def _keep(self, data: bytes) -> None:
        room = self._head_most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_most:
            surplus = len(self._tail) - self._tail_most
            self._dropped += surplus
            del self._tail[:surplus]


def _collapse(lines: bytes) -> bytes:
    """Each line as a terminal would show it: what follows its last carriage return."""
    if b"\r" not in lines:
        return lines
    return b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines.split(b"\n"))


def plain(data: bytes) -> str:
    """Bytes that a command printed as they are shown: clean text, redrawn lines collapsed."""
    return _clean(_collapse(data))


def _clean(data: bytes) -> str:
    return strip_terminal(clean_text(data.decode("utf-8", "replace")))
