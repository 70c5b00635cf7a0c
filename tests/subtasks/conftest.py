"""The agent's stage, with a piece that waits for subtasks and one for the subtasks themselves."""

from __future__ import annotations

import pytest

from tests.agent.conftest import endpoint, sandbox, stage
from tests.agent.stage import Stage
from tests.cli.conftest import cli, folder
from tests.crash.conftest import bench
from tests.jobs.conftest import db, installation
from tests.subtasks.family import Family

__all__ = ["bench", "cli", "db", "endpoint", "folder", "installation", "sandbox", "stage"]


@pytest.fixture
def family(stage: Stage) -> Family:
    return Family(stage)
