"""Glob: the files whose paths fit a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from jobs.workspace import Entry, walk
from storage.text import clean_text
from worker.cancel import CancelToken
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.page import Page
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.patterns import BadPattern, Pattern, glob_expression

MOST_WALKED = 200_000


class Glob:
    name = "Glob"
    description = (
        "List the files of the workspace whose path fits a glob: * and ? within a name, ** across folders, [a-z], "
        "{a,b}. A pattern without a slash is looked for in every folder. Sorted by path, with sizes in bytes."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "such as **/*.py or input/*.csv"},
            "path": {"type": "string", "description": "folder to look in (default: the whole workspace)"},
            "offset": {"type": "integer", "minimum": 0, "description": "number of first results to skip"},
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
        page = Page(context.budget_tokens, arguments.get("offset", 0))
        with opened_workspace(context) as root_fd:
            for entry in walked(root_fd, folder, context.cancel, git=".git" in arguments["pattern"]):
                below = entry.path[len(folder) :].lstrip("/")
                if entry.kind == "folder" or not wanted.fullmatch(below.encode("utf-8", "replace")):
                    continue
                size = str(entry.size) if entry.kind == "file" else entry.kind
                if not page.add(f"{clean_text(entry.path)}\t{size}\n"):
                    break
        return ToolResult(page.text("files") or "No files fit.")


def file_filter(pattern: str) -> Pattern:
    """A glob over paths relative to the folder searched. Raises BadPattern."""
    pattern = pattern.removeprefix("/workspace/").removeprefix("./")
    return glob_expression(pattern if "/" in pattern else f"**/{pattern}")


def walked(root_fd: int, folder: str, cancel: CancelToken, *, git: bool) -> Iterator[Entry]:
    """The entries below a folder, up to MOST_WALKED of them; what git keeps in `.git` only if asked for.

    Raises Cancelled between two entries.
    """
    for count, entry in enumerate(walk(root_fd, folder)):
        cancel.raise_if_cancelled()
        if count >= MOST_WALKED:
            return
        if git or ".git" not in entry.path.split("/"):
            yield entry
