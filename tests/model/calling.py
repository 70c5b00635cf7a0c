"""Short ways to call a model over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.strict_endpoint import Mind, Raw, StrictEndpoint
from worker.cancel import CancelToken
from worker.model.openai_client import Endpoint, OpenAIModel
from worker.model.types import ModelReply, ModelRequest

TOOL = {
    "type": "function",
    "function": {"name": "Read", "description": "reads", "parameters": {"type": "object", "properties": {}}},
}
TALK = [{"role": "system", "content": "Movement: work"}, {"role": "user", "content": "Begin."}]


def model_of(
    endpoint: StrictEndpoint, *, key: str = "", idle: float = 30.0, total: float = 60.0
) -> OpenAIModel:
    return OpenAIModel(Endpoint(endpoint.url, key, idle, total))


def a_request(
    messages: list[dict[str, Any]] | None = None, label: str = "job/1/1", max_output: int | None = None
) -> ModelRequest:
    return ModelRequest("test-model", messages or TALK, [TOOL], max_output, label)


def ask(mind: Mind, **given: Any) -> ModelReply:
    """One call against a fresh endpoint; ModelErrors come through."""
    with StrictEndpoint(mind) as endpoint:
        return model_of(endpoint, **given).complete(a_request(), CancelToken())


def ask_raw(*pieces: bytes, content_type: str = "text/event-stream", cut: bool = False) -> ModelReply:
    """One call answered with exactly these bytes."""
    return ask(lambda _: Raw(pieces, content_type, cut))


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(finish: str | None = None, **parts: Any) -> bytes:
    """A stream's chunk with this delta."""
    return event({"choices": [{"index": 0, "delta": parts, "finish_reason": finish}]})


def call_delta(*calls: dict[str, Any]) -> bytes:
    return delta(tool_calls=list(calls))


DONE = b"data: [DONE]\n\n"


@contextmanager
def serving(mind: Mind, **options: Any) -> Iterator[tuple[StrictEndpoint, OpenAIModel]]:
    with StrictEndpoint(mind, **options) as endpoint:
        yield endpoint, model_of(endpoint)
