"""The agent's stage: the real loop against the strict endpoint, on both databases."""

from __future__ import annotations

from tests.agent.conftest import endpoint, sandbox, stage

__all__ = ["endpoint", "sandbox", "stage"]
