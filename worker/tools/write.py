"""Write: a whole file."""

from __future__ import annotations

from typing import Any, ClassVar

from jobs.resolver import replacing
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.paths import opened_workspace, writable_path
from worker.tools.text import mend_surrogates


class Write:
    """Writing the same content again ends in the same file, and a file is only ever replaced as a whole: a call whose
    worker died may simply be run again."""

    name = "Write"
    description = (
        "Write a file of the workspace, replacing it if it exists; missing folders are made. Results for people belong "
        "in output/. To change a part of a file, use Edit."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "path in the workspace, such as output/a.md",
            },
            "content": {"type": "string", "description": "the whole new content"},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = True

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = writable_path(context, arguments["path"])
        data = mend_surrogates(arguments["content"]).encode()
        with opened_workspace(context) as root_fd, replacing(root_fd, path) as file:
            file.write(data)
        return ToolResult(f"Wrote {len(data)} bytes to {path}")
