"""What the process knows of models: the shared facts, held in memory, so that looking costs no query."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from storage.engine import Database
from storage.model_facts import all_facts, learn

FRESH_SECONDS = 10.0


class ModelMemory:
    """Facts by endpoint and model; thread-safe. Others' discoveries arrive within FRESH_SECONDS of work."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._facts: dict[str, dict[str, Any]] = {}
        self._read_at: float | None = None

    def refresh(self) -> None:
        """Reads the table, if that was not done a moment ago. Raises StorageError."""
        with self._lock:
            now = time.monotonic()
            if self._read_at is not None and now - self._read_at < FRESH_SECONDS:
                return
            self._read_at = now  # one thread reads, the others go on with what is there
        facts = all_facts(self._db)
        with self._lock:
            self._facts = facts

    def get(self, key: str) -> Mapping[str, Any]:
        """What is known; empty where nothing is. Never touches the database."""
        with self._lock:
            return self._facts.get(key, {})

    def learn(self, key: str, news: Mapping[str, Any]) -> None:
        """Keeps `news` for all workers. Raises StorageError."""
        facts = learn(self._db, key, news)
        with self._lock:
            self._facts = {**self._facts, key: facts}
