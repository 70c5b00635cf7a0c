"""A Reply as Chat Completions JSON: whole, or as the chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from tests.strict_endpoint.minds import Call, ChatRequest, Reply
from worker.tokens import estimate_tokens


def whole_completion(request: ChatRequest, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, **reply.reasoning}
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    if reply.calls:
        message["tool_calls"] = [
            {"id": _id(call), "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in reply.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    answer = {**_envelope(request, "chat.completion"), "choices": [choice]}
    return {**answer, "usage": _usage(request, reply)} if reply.usage else answer


def chunks(request: ChatRequest, reply: Reply) -> Iterator[bytes]:
    """The stream's events, without the final [DONE]."""
    envelope = _envelope(request, "chat.completion.chunk")

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse({**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield event({"role": "assistant", "content": ""})
    for name, value in reply.reasoning.items():
        yield event({name: value})
    for piece in _pieces(reply.text or "", reply.chunks):
        yield event({"content": piece})
    if reply.refusal is not None:
        yield event({"refusal": reply.refusal})
    for index, call in enumerate(reply.calls):
        opening = {"name": call.name, "arguments": ""}
        yield event(
            {"tool_calls": [{"index": index, "id": _id(call), "type": "function", "function": opening}]}
        )
        for piece in _pieces(call.text, 2):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, _finish(reply))
    if reply.usage and (request.body.get("stream_options") or {}).get("include_usage"):
        yield sse({**envelope, "choices": [], "usage": _usage(request, reply)})


def sse(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n\n"


def _envelope(request: ChatRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": request.body["model"],
    }


def _usage(request: ChatRequest, reply: Reply) -> dict[str, Any]:
    if isinstance(reply.usage, dict):
        return reply.usage
    said = (reply.text or "") + "".join(call.name + call.text for call in reply.calls)
    completion = max(estimate_tokens(said), 1)
    prompt = request.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def _id(call: Call) -> str:
    return f"call_{uuid.uuid4().hex[:24]}" if call.id is None else call.id


def _pieces(text: str, count: int) -> list[str]:
    size = max(-(-len(text) // max(count, 1)), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]
