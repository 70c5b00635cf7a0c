"""Fixtures of the resilience tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.engine import Database
from storage.migrate import upgrade
from tests.crash.bench import make_installation
from tests.resilience.bench import COMPLETE, Bench, story
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import StrictEndpoint


@pytest.fixture
def bench(
    migrated_url: str, data_dir: Path, valkey_server: RedisServer, worker_process: CommandFactory
) -> Iterator[Bench]:
    """An installation on SQLite and one on Postgres, with a Valkey of its own."""
    yield from make_bench(migrated_url, data_dir, valkey_server, worker_process)


@pytest.fixture
def sqlite_bench(
    tmp_path: Path,
    _migrated_sqlite: Path,
    data_dir: Path,
    valkey_server: RedisServer,
    worker_process: CommandFactory,
) -> Iterator[Bench]:
    """The same on SQLite alone, for what does not hang on the database."""
    shutil.copyfile(_migrated_sqlite, tmp_path / "test.db")
    yield from make_bench(f"sqlite:///{tmp_path}/test.db", data_dir, valkey_server, worker_process)


@pytest.fixture
def private_postgres_bench(
    private_postgres: PostgresServer,
    data_dir: Path,
    valkey_server: RedisServer,
    worker_process: CommandFactory,
) -> Iterator[Bench]:
    """On a Postgres of the test's own, to be killed and frozen."""
    database = Database(private_postgres.url())
    upgrade(database)
    database.close()
    yield from make_bench(private_postgres.url(), data_dir, valkey_server, worker_process)


def make_bench(
    database_url: str, data_dir: Path, broker: RedisServer, commands: CommandFactory
) -> Iterator[Bench]:
    """The endpoint must have been asked nothing that it refuses."""
    installation = make_installation(database_url, data_dir, broker_url=broker.url)
    with StrictEndpoint(story(COMPLETE)) as endpoint:
        yield Bench(installation, endpoint, commands, broker)
        endpoint.assert_clean()
    installation.close()
