"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.bench import CrashBench, make_installation, mind
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import StrictEndpoint


@pytest.fixture
def bench(migrated_url: str, data_dir: Path, worker_process: CommandFactory) -> Iterator[CrashBench]:
    """An installation on SQLite, and one on Postgres; the endpoint must have been asked nothing it refuses."""
    installation = make_installation(migrated_url, data_dir)
    with StrictEndpoint(mind) as endpoint:
        yield CrashBench(installation, endpoint, worker_process)
        endpoint.assert_clean()
    installation.close()
