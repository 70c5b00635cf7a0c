"""The agent's stage, for what stories have found, told plainly."""

from __future__ import annotations

from tests.agent.conftest import endpoint, sandbox, stage

__all__ = ["endpoint", "sandbox", "stage"]
