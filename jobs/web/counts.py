"""How many jobs of each state there are, for pages that ask again and again."""

from __future__ import annotations

import threading
import time

from storage.engine import Database
from storage.listing import count_by_state

SHARE = 20  # counting takes at most this part of the time
MOST_OWNERS = 200  # remembered at once


class Counts:
    """Counts by owner. Where counting is quick they are of now; where it takes long, as old as 20 times that."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str | None, tuple[float, dict[str, int]]] = {}
        self._mutex = threading.Lock()

    def of(self, owner: str | None) -> dict[str, int]:
        """By state, every state; `owner` None: of all jobs. One thread counts while others wait for its answer."""
        with self._mutex:
            until, counted = self._known.get(owner, (0.0, {}))
            if time.monotonic() < until:
                return counted
            began = time.monotonic()
            counted = count_by_state(self._db, owner)
            now = time.monotonic()
            self._known = dict(list(self._known.items())[-MOST_OWNERS:])
            self._known[owner] = (now + SHARE * (now - began), counted)
            return counted
