"""Glob: the files whose paths fit a pattern."""

from __future__ import annotations

from typing import Any, ClassVar

from storage.text import clean_text
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.patterns import BadPattern
from worker.tools.search import IGNORED_PARAMETER, OFFSET_PARAMETER, Search, file_filter, page_of, with_notes


class Glob:
    """Only names and sizes: no file is opened but `.gitignore` files."""

    name = "Glob"
    description = (
        "List the files of the workspace whose path fits a glob: * and ? within a name, ** across folders, [a-z], "
        "{a,b}. A pattern without a slash is looked for in every folder. Sorted by path, with sizes in bytes. What "
        ".gitignore files leave out is not listed unless asked for."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "such as **/*.py or input/*.csv"},
            "path": {"type": "string", "description": "folder to look in (default: the whole workspace)"},
            "ignored": IGNORED_PARAMETER,
            "offset": OFFSET_PARAMETER,
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        folder = relative_path(context, arguments.get("path", ""))
        try:
            wanted = file_filter(arguments["pattern"])
        except BadPattern as error:
            return ToolResult(f"Error: {error}", is_error=True)
        page = page_of(arguments, context.budget_tokens)
        with opened_workspace(context) as root_fd:
            search = Search(
                root_fd,
                folder,
                context.cancel,
                wanted,
                ignored=arguments.get("ignored", False),
                git=".git" in arguments["pattern"].split("/"),
            )
            for entry in search.entries():
                size = str(entry.size) if entry.kind == "file" else entry.kind
                if not page.add(f"{clean_text(entry.path)}\t{size}\n"):
                    break
        return ToolResult(with_notes(page.text("files") or "No files fit.", search.notes()))
