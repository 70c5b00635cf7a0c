"""A migrated database, once on SQLite and once on Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.engine import Database


@pytest.fixture
def db(migrated_url: str) -> Iterator[Database]:
    """Closed at the test's end."""
    database = Database(migrated_url)
    yield database
    database.close()
