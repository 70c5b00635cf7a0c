"""What a server answered, as text for the model."""

from __future__ import annotations

import json
from typing import Any

from mcp import types

from jobs.plain_text import strip_terminal
from storage.text import clean_text
from worker.tools.base import ToolResult

_MOST_CHARS_A_TOKEN = 16
_EMPTY = "[the tool answered nothing]"


def to_result(answer: types.CallToolResult, budget_tokens: int) -> ToolResult:
    """Text as it is, other content as a placeholder; structured content only where there is nothing else.

    What is far beyond the budget is dropped here already; the exact cut is the caller's.
    """
    most = budget_tokens * _MOST_CHARS_A_TOKEN
    parts = [_told(block) for block in answer.content]
    if not parts and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)[:most]
    content = strip_terminal(clean_text(text)) or _EMPTY
    return ToolResult(f"Error: {content}" if answer.is_error else content, is_error=answer.is_error)


def _told(block: Any) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            kind = "image" if isinstance(block, types.ImageContent) else "sound"
            return f"[{kind}: {block.mime_type}, {len(block.data) * 3 // 4:,} bytes, not shown]"
        case types.ResourceLink():
            return f"[link: {block.name}, {block.uri}]"
        case types.EmbeddedResource():
            inner = block.resource
            if isinstance(inner, types.TextResourceContents):
                return inner.text
            return f"[data: {inner.uri}, {inner.mime_type or 'unknown kind'}, not shown]"
    return "[content of an unknown kind, not shown]"
