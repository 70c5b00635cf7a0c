"""The `recall` tool: what a summary, or a shortened result, stands for, looked up in the transcript."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storage import transcript
from storage.engine import Database
from storage.records import Message
from worker.flattening import flatten
from worker.tokens import estimate_tokens
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.text import prefix_that_fits

NAME = "recall"
MOST_FOUND = 20
AROUND = 200  # characters shown on each side of what was searched for
_NOTICE_TOKENS = 40
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer", "minimum": 1, "description": "number of the message to read"},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "with seq: characters to pass over",
        },
        "query": {"type": "string", "minLength": 1, "maxLength": 200, "description": "text to find"},
        "before": {"type": "integer", "minimum": 1, "description": "with query: only older messages"},
    },
}


@dataclass(frozen=True, slots=True)
class Recall:
    """Reads the messages of the job's present movement; made for one run, so that it can reach no other job's."""

    db: Database
    job_id: str
    first_seq: Callable[[], int]  # of the movement: earlier ones hand over lessons, not messages
    name: str = NAME
    description: str = (
        "Looks up earlier messages of this conversation, also those that a summary now stands for or that are shown "
        "shortened: one message by its number (seq), or those that contain a text (query)."
    )
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return _PARAMETERS

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        budget = max(context.budget_tokens - _NOTICE_TOKENS, 1)
        if "seq" in arguments:
            return self._read(arguments["seq"], arguments.get("offset", 0), budget)
        if "query" in arguments:
            return self._find(arguments["query"], arguments.get("before"), budget)
        return ToolResult("Give seq, or query.", is_error=True)

    def _read(self, seq: int, offset: int, budget: int) -> ToolResult:
        found = transcript.list_messages(self.db, self.job_id, seq - 1, 1)
        text = _told(found[0]) if found and found[0].seq == seq >= self.first_seq() else ""
        if not text:
            return ToolResult(f"There is no message {seq} in this conversation.", is_error=True)
        rest = text[offset:]
        if not rest:
            return ToolResult(f"Message {seq} has {len(text)} characters.", is_error=True)
        if estimate_tokens(rest) <= budget:
            return ToolResult(rest)
        fits = prefix_that_fits(rest, budget)
        return ToolResult(f"{rest[:fits]}\n[cut here: read on with seq={seq}, offset={offset + fits}]")

    def _find(self, query: str, before: int | None, budget: int) -> ToolResult:
        found = transcript.find_messages(
            self.db, self.job_id, query, first=self.first_seq(), before=before, limit=MOST_FOUND + 1
        )
        lines: list[str] = []
        for row in found[:MOST_FOUND]:
            line = _excerpt(_told(row), query)
            if lines and estimate_tokens(line) > budget:
                break
            lines.append(line[: prefix_that_fits(line, budget)] if estimate_tokens(line) > budget else line)
            budget -= estimate_tokens(line)
        if not lines:
            return ToolResult("No message of this conversation contains it.")
        if len(lines) < len(found):
            lines.append(f"[older ones: query again with before={found[len(lines) - 1].seq}]")
        return ToolResult("\n\n".join(lines))


def _told(row: Message) -> str:
    return "\n".join(entry.text for entry in flatten([row]))


def _excerpt(text: str, query: str) -> str:
    """The message's number and speaker, and the text around the place; its beginning where only its case differs."""
    header, _, body = text.partition("\n")
    at = max(body.casefold().find(query.casefold()), 0)
    start, end = max(at - AROUND, 0), at + len(query) + AROUND
    return f"{header}\n{'…' if start else ''}{body[start:end]}{'…' if end < len(body) else ''}"
