"""Two installations: one on each database, whose brokers are not there; the second one is on the other database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.settings import Settings
from storage.engine import Database
from tests.servers.postgres import PostgresServer


def open_at(url: str, data_dir: Path) -> Installation:
    """An installation whose broker is refused at once."""
    settings = Settings(
        data_dir=data_dir, database_url=url, broker_url=f"redis+socket://{data_dir}/no-broker"
    )
    return Installation(settings, Database(url))


def knowing_piece(installation: Installation, folder: Path, text: str) -> Installation:
    """The installation with a piece `crash` of its own: others do not know it."""
    pieces = folder / "pieces"
    pieces.mkdir()
    (pieces / "crash.yaml").write_text(text)
    return Installation(installation.settings.model_copy(update={"pieces_dir": pieces}), installation.db)


@pytest.fixture
def here(migrated_url: str, tmp_path: Path) -> Iterator[Installation]:
    """Where jobs come from: on SQLite once, on Postgres once."""
    installation = open_at(migrated_url, tmp_path / "here")
    yield installation
    installation.close()


@pytest.fixture
def there(request: pytest.FixtureRequest, migrated_url: str, tmp_path: Path) -> Iterator[Installation]:
    """Where they go: an empty installation on the other database."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    template: str = request.getfixturevalue("_migrated_postgres")
    name = None
    if migrated_url.startswith("sqlite"):
        name = server.create_database(template)
        url = server.url(name)
    else:
        shutil.copyfile(request.getfixturevalue("_migrated_sqlite"), tmp_path / "there.db")
        url = f"sqlite:///{tmp_path}/there.db"
    installation = open_at(url, tmp_path / "there")
    yield installation
    installation.close()
    if name is not None:
        server.drop_database(name)
