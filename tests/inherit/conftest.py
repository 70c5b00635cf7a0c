"""The agent's stage, on which jobs follow one another."""

from __future__ import annotations

from tests.agent.conftest import endpoint, sandbox, stage

__all__ = ["endpoint", "sandbox", "stage"]
