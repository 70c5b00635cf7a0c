"""Transcript rows without a database, for the pure functions of the context."""

from __future__ import annotations

from typing import Any

from storage.records import Message
from worker.tokens import estimate_tokens


def row(seq: int, role: str, kind: str, content: str | None, **more: Any) -> Message:
    return Message(seq, 1, role, kind, content, "run", 0.0, tokens=estimate_tokens(content or ""), **more)


def said(seq: int, text: str | None, *calls: tuple[str, str, str]) -> Message:
    """A reply; `calls` are (id, name, arguments)."""
    made = [{"id": call, "name": name, "arguments": arguments} for call, name, arguments in calls]
    return row(seq, "assistant", "assistant", text, tool_calls=made or None)


def result(seq: int, call: str, text: str, name: str = "Bash", **more: Any) -> Message:
    return row(seq, "tool", "tool", text, tool_call_id=call, tool_name=name, **more)


def gap(seq: int, text: str, **more: Any) -> Message:
    return row(seq, "user", "gap", text, **more)


def steps(first: int, count: int, text: str = "result") -> list[Message]:
    """`count` steps of one call and its result each, from seq `first`."""
    found: list[Message] = []
    for number in range(count):
        seq = first + 2 * number
        found.append(said(seq, None, (f"c{seq}", "Bash", f'{{"n": {number}}}')))
        found.append(result(seq + 1, f"c{seq}", f"{text} {number}"))
    return found
