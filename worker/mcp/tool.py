"""A tool of an MCP server, as the agent loop knows tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worker.tools.base import CrashPolicy, ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class McpTool:
    """`call` reaches the server by its name, so a tool outlives every connection."""

    name: str
    server: str
    raw_name: str
    description: str
    parameters: dict[str, Any]
    crash: CrashPolicy
    call: Callable[[str, str, ToolContext, dict[str, Any]], ToolResult]
    edits: bool = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return self.call(self.server, self.raw_name, context, arguments)
