"""A stage for attacks through the agent, and shells for those from inside a sandbox."""

from tests.agent.conftest import endpoint, sandbox, stage
from tests.sandbox.conftest import any_shell, shell

__all__ = ["any_shell", "endpoint", "sandbox", "shell", "stage"]
