"""From transcript rows to the messages of a request: one pure function.

    0     system, frozen per movement
    1     user HEAD: its blocks in order, the instruction last; a compaction's summary stands after what was inherited
    2…    turns: assistant → all results in call order → at most one user gap message

What a strict server refuses cannot come out of here: user texts in a row are merged, results stand in call order
right after their calls, and arguments always parse to an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from storage.records import Message
from worker.model.rules import REASONING, SIGNATURE
from worker.reminders import on_the_wire

WireMessage = dict[str, Any]
INHERITED = "inheritance"  # the head block that a summary stands after
INSTRUCTION = "instruction"
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


def build_messages(rows: Sequence[Message]) -> list[WireMessage]:
    """The messages of the next request, from the rows of the present view in the order of their seq.

    Each call in the view must have its result, or ValueError: an unanswered call is the agent loop's to answer first.
    """
    system = next(row for row in rows if row.kind == "system")
    built: list[WireMessage] = [{"role": "system", "content": system.content}, _head(rows)]
    turns = [row for row in rows if row.kind in ("assistant", "tool", "gap")]
    results = {row.tool_call_id: row for row in turns if row.role == "tool"}
    for row in turns:
        if row.role == "assistant":
            built.extend(_turn(row, results))
        elif row.role == "user":
            _append_user(built, on_the_wire(row))
    return built


def _head(rows: Sequence[Message]) -> WireMessage:
    blocks = [row for row in rows if row.kind == "head"]
    summaries = [row for row in rows if row.kind == "summary"]
    inherited = [row for row in blocks if (row.extra or {}).get("block") == INHERITED]
    rest = [row for row in blocks if row not in inherited]
    texts = [_head_text(row) for row in (*inherited, *summaries[-1:], *rest) if row.content]
    return {"role": "user", "content": "\n\n".join(texts)}


def _head_text(row: Message) -> str:
    """The instruction goes out byte for byte; what was gathered around it speaks in nobody's name but its own."""
    is_instruction = (row.extra or {}).get("block") == INSTRUCTION
    return row.content or "" if is_instruction else on_the_wire(row)


def _turn(row: Message, results: dict[str | None, Message]) -> Iterator[WireMessage]:
    message: WireMessage = {"role": "assistant", "content": row.content}
    extra = row.extra or {}
    asked = extra.get("asked") or extra.get("model")
    if row.tool_calls:
        message["tool_calls"] = [_call(call, asked) for call in row.tool_calls]
    if extra.get("reasoning"):
        message[REASONING] = {"by": asked, "fields": extra["reasoning"]}
    yield message
    for call in row.tool_calls or ():
        if (result := results.get(call["id"])) is None:
            raise ValueError(f"call {call['id']} of message {row.seq} has no result")
        yield {"role": "tool", "tool_call_id": call["id"], "content": on_the_wire(result)}


def _call(call: dict[str, Any], asked: str | None) -> WireMessage:
    # Broken arguments stay in the transcript as the model wrote them; servers and chat templates parse what is sent.
    # So does a name that is none: servers refuse it in every later request, and the job could never go on.
    arguments = "{}" if call.get("broken") else call["arguments"]
    name = _NO_NAME.sub("_", call["name"])[:64] or "unnamed"
    built = {"id": call["id"], "type": "function", "function": {"name": name, "arguments": arguments}}
    return built | {SIGNATURE: {"by": asked, "value": call["extra"]}} if call.get("extra") else built


def _append_user(built: list[WireMessage], text: str) -> None:
    if built[-1]["role"] == "user":
        built[-1]["content"] = f"{built[-1]['content']}\n\n{text}"
    else:
        built.append({"role": "user", "content": text})


def request_text(messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> str:
    """All text of a request, for an estimate of its tokens."""
    parts = [message.get("content") or "" for message in messages]
    parts += [
        json.dumps(message["tool_calls"], ensure_ascii=False)
        for message in messages
        if "tool_calls" in message
    ]
    parts += [json.dumps(tools, ensure_ascii=False)] if tools else []
    return "\n".join(parts)
