"""Servers over a sandbox of each level, and calls to them as an agent's thread makes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs.mcp_settings import McpServer
from jobs.settings import Settings
from tests.agent.conftest import endpoint, sandbox, stage
from tests.sandbox.conftest import make_shell
from worker.cancel import CancelToken
from worker.mcp.servers import McpServers
from worker.sandbox.base import Sandbox
from worker.sandbox.toolchain import python_program
from worker.tools.base import ToolContext, ToolResult

__all__ = ["endpoint", "sandbox", "stage"]

SERVERS = Path(__file__).parent / "servers"
Plain = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """Settings of the plain server; its program lies in a folder that nothing else is in."""
    folder = tmp_path_factory.mktemp("mcp")
    shutil.copy(SERVERS / "plain.py", folder)

    def settings(**more: Any) -> dict[str, Any]:
        args = ("-I", "-S", str(folder / "plain.py"))
        return {"command": python_program(), "args": args, "read": (folder,)} | more

    return settings


@dataclass
class Caller:
    """One job's run, calling tools of the servers."""

    servers: McpServers
    workspace: Path
    cancel: CancelToken = field(default_factory=CancelToken)
    budget: int = 1000

    def __call__(self, tool: str, server: str = "plain", **arguments: Any) -> ToolResult:
        context = ToolContext(
            workspace=self.workspace,
            cancel=self.cancel,
            budget_tokens=self.budget,
            job_id="job",
            call_id="call",
            sandbox=None,
            bash_timeout=10,
        )
        return self.servers.call(server, tool, context, arguments)

    def end(self) -> None:
        self.servers.close_run(self.cancel)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Caller]]:
    """Makes a caller; its servers have told what they offer."""
    opened: list[McpServers] = []

    def start(box: Sandbox | None, servers: dict[str, dict[str, Any]]) -> Caller:
        checked = Settings(data_dir=tmp_path / "data", mcp=servers).mcp  # type: ignore[arg-type]  # as in YAML
        made = McpServers(checked, box, tmp_path / "data")
        opened.append(made)
        made.start(lambda: None)
        return Caller(made, new_workspace(tmp_path / "job"))

    yield start
    for servers in opened:
        servers.stop()


def new_workspace(folder: Path) -> Path:
    for name in ("input", "output", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(params=["bwrap", "landlock"])
def caller(
    request: pytest.FixtureRequest, tmp_path: Path, started: Callable[..., Caller], plain: Plain
) -> Caller:
    """The plain server at each level that confines."""
    box = make_shell(request.param, tmp_path / "probe").sandbox
    return started(box, {"plain": plain(call_timeout=20)})


def checked(**given: Any) -> McpServer:
    return McpServer.model_validate(given)
