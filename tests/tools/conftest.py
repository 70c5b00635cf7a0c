"""Real sandboxes for the tools that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.helpers import make_context, make_workspace
from worker.sandbox.base import Caps, Sandbox
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.landlock import Landlock, Unconfined
from worker.tools.base import ToolContext


@pytest.fixture(params=[Bwrap, Landlock, Unconfined], ids=["bwrap", "landlock", "none"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each level in turn."""
    sandbox: Sandbox = request.param(Caps())
    return sandbox


@pytest.fixture
def sandboxed(tmp_path: Path) -> ToolContext:
    """A workspace, and the strongest level."""
    return make_context(make_workspace(tmp_path), sandbox=Bwrap(Caps()))


@pytest.fixture(scope="session")
def session_sandbox() -> Sandbox:
    """The strongest level, for tests that make many examples."""
    return Bwrap(Caps())
