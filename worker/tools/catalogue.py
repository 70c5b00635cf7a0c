"""Which tools there are, and which of them a movement may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from worker.tools.base import Tool
from worker.tools.bash import Bash
from worker.tools.documents import ReadOffice, ReadPdf
from worker.tools.edit import Edit
from worker.tools.glob import Glob
from worker.tools.grep import Grep
from worker.tools.images import ReadImage
from worker.tools.read import Read
from worker.tools.write import Write


class Catalogue:
    """Tools by name. Names are unique; later sources of tools (MCP servers, plugins) come in as more `tools`."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name}")
            self._tools[tool.name] = tool

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._tools)

    def select(self, allowed_tools: Iterable[str], *, edit: bool) -> dict[str, Tool]:
        """The tools whose names fit one of the globs (`Read`, `mcp__*`, `*`; case matters), sorted by name.

        Tools that edit files are left out unless `edit`. A glob that fits nothing is no error here.
        """
        globs = list(allowed_tools)
        return {
            name: tool
            for name, tool in sorted(self._tools.items())
            if (edit or not tool.edits) and any(fnmatchcase(name, glob) for glob in globs)
        }


def standard_tools() -> list[Tool]:
    """The tools that work on the workspace."""
    return [Bash(), Edit(), Glob(), Grep(), Read(), ReadImage(), ReadOffice(), ReadPdf(), Write()]


def schemas(tools: Mapping[str, Tool]) -> list[dict[str, Any]]:
    """The tools as the chat completions API wants them, sorted by name: the same tools give the same bytes."""
    return [
        {
            "type": "function",
            "function": {"name": name, "description": tool.description, "parameters": tool.parameters},
        }
        for name, tool in sorted(tools.items())
    ]
