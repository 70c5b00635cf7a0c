"""The agent's stage, for tests of what its model sees."""

from __future__ import annotations

from tests.agent.conftest import endpoint, sandbox, stage

__all__ = ["endpoint", "sandbox", "stage"]
