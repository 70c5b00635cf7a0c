"""The `read_comments` tool: older or cut comments, whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from storage import jobs as store
from storage.engine import Database
from worker.prompts import remark_line
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.text import cut_to_budget

_MOST = 50
_CUT = "[cut here: read fewer comments at a time]"


@dataclass(frozen=True, slots=True)
class ReadComments:
    """Reads the job's own comments; made for one run, so that it can reach no other job's."""

    db: Database
    job_id: str
    zone: tzinfo
    name: str = "read_comments"
    description: str = "Reads comments of this job in full, by number."
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "first": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "number of the first comment to read",
                },
                "last": {
                    "type": "integer",
                    "minimum": 1,
                    "description": f"number of the last; at most {_MOST} at a time",
                },
            },
            "required": ["first"],
        }

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        first = arguments["first"]
        last = min(arguments.get("last", first), first + _MOST - 1)
        found = [
            remark
            for remark in store.list_comments(self.db, self.job_id, first - 1, _MOST)
            if remark.number <= last
        ]
        if not found:
            return ToolResult(f"There is no comment {first}.", is_error=True)
        text = "\n\n".join(remark_line(remark, self.zone, len(remark.text)) for remark in found)
        return ToolResult(cut_to_budget(text, context.budget_tokens, _CUT))
