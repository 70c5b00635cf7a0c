"""The agent's stage, for exchanges of whole jobs."""

from tests.agent.conftest import endpoint, sandbox, stage

__all__ = ["endpoint", "sandbox", "stage"]
