"""A list of results that fits a budget, and the hint that reads on."""

from __future__ import annotations

from worker.tokens import estimate_tokens

_NOTICE_TOKENS = 60


class Page:
    """Collects results one after another, after skipping `offset` of them, while they fit."""

    def __init__(self, budget: int, offset: int) -> None:
        self._room = budget - _NOTICE_TOKENS
        self._skip = offset
        self._seen = 0
        self._shown: list[str] = []
        self._cut = False

    def add(self, result: str) -> bool:
        """Take one result (a whole line or more, in clean text); False when the page is full and nothing more is
        wanted. The first one is always taken, so that every page moves forward."""
        self._seen += 1
        if self._seen <= self._skip:
            return True
        cost = estimate_tokens(result)
        if cost > self._room and self._shown:
            self._cut = True
            return False
        self._room -= cost
        self._shown.append(result)
        return True

    def text(self, what: str) -> str:
        """The page; '' if there is nothing."""
        if not self._shown and self._seen:
            return f"[only {self._seen} {what} in all]"
        if not self._cut:
            return "".join(self._shown)
        following = self._skip + len(self._shown)
        return f"{''.join(self._shown)}[cut: more {what} follow. Read on with offset={following}]"
