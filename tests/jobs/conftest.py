"""An installation on each database, whose broker is not there: what is told to nobody must still be right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.settings import Settings
from storage.engine import Database


@pytest.fixture
def installation(migrated_url: str, tmp_path: Path) -> Iterator[Installation]:
    """Nothing listens at the broker's address, which is refused at once."""
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=migrated_url,
        broker_url=f"redis+socket://{tmp_path}/no-broker",
    )
    opened = Installation(settings, Database(settings.database_url))
    yield opened
    opened.close()


@pytest.fixture
def db(installation: Installation) -> Database:
    return installation.db
