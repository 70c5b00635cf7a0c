"""The `read_comments` tool: older or cut comments, whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from storage.comments import list_comments
from storage.engine import Database
from storage.records import Comment
from worker.prompts import remark_line
from worker.tokens import estimate_tokens
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.text import prefix_that_fits

NAME = "read_comments"
_MOST = 50
_NOTICE_TOKENS = 30
_PARAMETERS: dict[str, Any] = {
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
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "characters of the first comment to pass over",
        },
    },
    "required": ["first"],
}


@dataclass(frozen=True, slots=True)
class ReadComments:
    """Reads the job's own comments; made for one run, so that it can reach no other job's."""

    db: Database
    job_id: str
    zone: tzinfo
    name: str = NAME
    description: str = "Reads comments of this job in full, by number; what does not fit says how to read on."
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return _PARAMETERS

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        first = arguments["first"]
        wanted = arguments.get("last", first)
        last = min(wanted, first + _MOST - 1)
        found = [
            remark
            for remark in list_comments(self.db, self.job_id, first - 1, _MOST)
            if remark.number <= last
        ]
        if not found:
            return ToolResult(f"There is no comment {first}.", is_error=True)
        return ToolResult(self._told(found, arguments.get("offset", 0), wanted, context.budget_tokens))

    def _told(self, found: list[Comment], offset: int, wanted: int, budget: int) -> str:
        """The comments as far as they fit, and where the next call goes on."""
        parts: list[str] = []
        left = budget - _NOTICE_TOKENS
        for remark in found:
            rest = replace(remark, text=remark.text[offset:])
            line = remark_line(rest, self.zone, len(rest.text))
            if parts and estimate_tokens(line) > left:
                return _cut(parts, f"first={remark.number}")
            if estimate_tokens(line) > left:
                header = estimate_tokens(remark_line(replace(remark, text=""), self.zone, 0))
                fits = prefix_that_fits(rest.text, max(left - header, 1))
                parts.append(remark_line(replace(rest, text=rest.text[:fits]), self.zone, fits))
                return _cut(parts, f"first={remark.number}, offset={offset + fits}")
            parts.append(line)
            left -= estimate_tokens(line)
            offset = 0
        if found[-1].number < wanted and len(found) == _MOST:
            return _cut(parts, f"first={found[-1].number + 1}")
        return "\n\n".join(parts)


def _cut(parts: list[str], rest: str) -> str:
    return "\n\n".join([*parts, f"[cut here: read on with {rest}]"])
