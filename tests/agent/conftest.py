"""The stage of a test, and what holds at the end of every one: no rule of the endpoint was broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.settings import Settings
from tests.agent.stage import COMPLETE, Stage
from tests.strict_endpoint import StrictEndpoint
from tests.waiting import wait_until
from worker.sandbox.base import Sandbox
from worker.sandbox.detect import detect


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return detect(Settings(data_dir=tmp_path_factory.mktemp("sandbox")))


@pytest.fixture
def endpoint() -> Iterator[StrictEndpoint]:
    with StrictEndpoint(lambda _: COMPLETE) as endpoint:
        yield endpoint
        endpoint.assert_clean()


@pytest.fixture
def stage(migrated_url: str, tmp_path: Path, endpoint: StrictEndpoint, sandbox: Sandbox) -> Iterator[Stage]:
    """On SQLite and on Postgres. No connection was in use while the model was asked, and none is left so."""
    stage = Stage(migrated_url, tmp_path, endpoint, sandbox)
    yield stage
    stage.close()
    assert not any(stage.busy_calls), "a database connection was held during a model call"
    # A thread that was told to stop may be in its last statement.
    wait_until(lambda: stage.process.db.busy_connections == 0, reason="every connection is given back")
