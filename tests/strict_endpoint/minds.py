"""What the endpoint can be told to answer, and the mind that decides it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from worker.model.errors import ModelErrorKind
from worker.model.script import Script


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that passed every rule. `number` counts the label's requests from 0."""

    label: str
    body: dict[str, Any]
    headers: dict[str, str]
    number: int
    prompt_tokens: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = self.body.get("tools") or []
        return tools

    @property
    def replies(self) -> int:
        """How many assistant messages it holds: where in a conversation it stands."""
        return sum(message["role"] == "assistant" for message in self.messages)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to answer with. Arguments given as text are sent as they are."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        return (
            self.arguments
            if isinstance(self.arguments, str)
            else json.dumps(self.arguments, ensure_ascii=False)
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer. `chunks` cuts the text into so many pieces; `delay` is waited before the first byte.

    `usage`: what was counted, nothing (False), or whatever is claimed.
    """

    text: str | None = None
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    reasoning: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None
    usage: bool | dict[str, Any] = True
    delay: float = 0.0
    chunks: int = 3


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """A plain HTTP answer instead of a reply. A body that is no bytes is sent as JSON."""

    status: int
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """The mind's own reply, broken off after so many chunks.

    `ending`: "cut" drops the connection, "end" ends the body in order but without [DONE], "hang" says nothing more;
    bytes are sent as they are before an orderly end; a dict is sent as an SSE error.
    """

    after_chunks: int
    ending: str | bytes | dict[str, Any] = "cut"


@dataclass(frozen=True, slots=True)
class Raw:
    """The exact bytes of a body, in the pieces given; `cut` drops the connection instead of ending the body."""

    pieces: tuple[bytes, ...]
    content_type: str = "text/event-stream"
    cut: bool = False


Answer = Reply | HttpFailure | Raw
Mind = Callable[[ChatRequest], Answer]

_STATUS = {
    ModelErrorKind.TRANSIENT: (500, "server_error"),
    ModelErrorKind.RATE_LIMIT: (429, "rate_limit_exceeded"),
    ModelErrorKind.QUOTA: (429, "insufficient_quota"),
    ModelErrorKind.OVERFLOW: (400, "context_length_exceeded"),
    ModelErrorKind.BAD_REQUEST: (400, "invalid_request_error"),
    ModelErrorKind.AUTHENTICATION: (401, "invalid_api_key"),
    ModelErrorKind.CAPABILITY: (400, "unsupported_parameter"),
    ModelErrorKind.INTERRUPTED: (502, "bad_gateway"),
}


def error_body(message: str, code: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def script_mind(script: Script) -> Mind:
    """A script as the endpoint's mind: the same file serves `scripted:PATH` and real HTTP."""

    def answer(request: ChatRequest) -> Answer:
        reply = script.answer(request.messages, request.tools)
        if reply.error is not None:
            status, code = _STATUS[reply.error.kind]
            wait = reply.error.retry_after
            return HttpFailure(
                status, error_body(str(reply.error), code), {} if wait is None else {"Retry-After": str(wait)}
            )
        return Reply(
            text=reply.text,
            calls=tuple(Call(call.name, call.arguments) for call in reply.calls),
            finish_reason=reply.finish_reason,
            refusal=reply.refusal,
            delay=reply.delay,
        )

    return answer
