"""Fixtures of the resilience tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.bench import make_installation
from tests.resilience.bench import COMPLETE, Bench, story
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import StrictEndpoint


@pytest.fixture
def bench(
    migrated_url: str, data_dir: Path, valkey_server: RedisServer, worker_process: CommandFactory
) -> Iterator[Bench]:
    """An installation on SQLite and one on Postgres, with a Valkey of its own."""
    yield from make_bench(migrated_url, data_dir, valkey_server, worker_process)


def make_bench(
    database_url: str, data_dir: Path, broker: RedisServer, commands: CommandFactory
) -> Iterator[Bench]:
    """The endpoint must have been asked nothing that it refuses."""
    installation = make_installation(database_url, data_dir, broker_url=broker.url)
    with StrictEndpoint(story(COMPLETE)) as endpoint:
        yield Bench(installation, endpoint, commands, broker)
        endpoint.assert_clean()
    installation.close()
