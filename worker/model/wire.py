"""Between our types and the bytes on the wire: request bodies, call ids."""

from __future__ import annotations

import uuid
from typing import Any

from storage.text import compact_json, valid_json
from worker.model.types import ModelRequest


def mint_call_id() -> str:
    """A call id every endpoint takes: unique, 29 characters, never the model's own."""
    return f"call_{uuid.uuid4().hex[:24]}"


def encode_request(request: ModelRequest) -> bytes:
    """The body of a Chat Completions request by its rules: valid UTF-8 without NUL, whatever the messages hold."""
    rules = request.rules
    payload: dict[str, Any] = {
        "model": request.model,
        "messages": request.messages,
        "stream": rules.streaming,
    }
    payload |= rules.parameters or {}
    if request.tools:
        payload["tools"] = request.tools
    if request.max_output_tokens is not None:
        payload[rules.limit_field] = request.max_output_tokens
    if rules.include_usage and rules.streaming:
        payload["stream_options"] = {"include_usage": True}
    try:
        body = _dump(payload)
    except UnicodeEncodeError:
        return _dump(valid_json(payload))
    # Cleaning walks the whole conversation, so only a body that needs it pays for it.
    return _dump(valid_json(payload)) if b"\\u0000" in body else body


def _dump(payload: dict[str, Any]) -> bytes:
    return compact_json(payload).encode()
