"""The scripted model: a Model whose replies come from a YAML file. For demos, and for tests of people's own pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker.cancel import CancelToken
from worker.model.script import Script, ScriptedReply
from worker.model.types import ModelReply, ModelRequest, ToolCall, Usage
from worker.model.wire import mint_call_id
from worker.tokens import estimate_again, estimate_tokens

PREFIX = "scripted:"
MOST_TOLD_TOOLS = 128
AROUND = 12  # tokens of what stands around a message's text, and around a call's


class ScriptedModel:
    """Answers as its script says, at no cost and on no network. Its usage is estimated."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._told_tools: dict[int, tuple[list[dict[str, Any]], int]] = {}  # by the list's id, which is held

    @classmethod
    def load(cls, spec: str) -> ScriptedModel:
        """From `scripted:PATH`. Raises ConfigurationError where the file is missing or wrong."""
        return cls(Script.load(Path(spec.removeprefix(PREFIX)).expanduser()))

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """See `Model`. Waits out the reply's delay, idle, and raises Cancelled at once when it is cancelled."""
        cancel.raise_if_cancelled()
        reply = self.script.answer(request.messages, request.tools)
        if reply.delay:
            cancel.wait(reply.delay)
            cancel.raise_if_cancelled()
        if reply.error is not None:
            raise reply.error
        return _as_reply(reply, request, self._tokens_of_tools(request.tools))

    def _tokens_of_tools(self, tools: list[dict[str, Any]]) -> int:
        """Estimated once for the schemas of a movement, which are one list as long as a run has them."""
        known = self._told_tools.get(id(tools))
        if known is None:
            if len(self._told_tools) >= MOST_TOLD_TOOLS:
                self._told_tools.clear()
            known = self._told_tools[id(tools)] = (
                tools,
                estimate_again(json.dumps(tools, ensure_ascii=False)),
            )
        return known[1]


def _as_reply(reply: ScriptedReply, request: ModelRequest, tools: int) -> ModelReply:
    calls = tuple(ToolCall(mint_call_id(), call.name, call.arguments) for call in reply.calls)
    said = "".join([reply.text or "", *(call.name + call.arguments for call in calls)])
    return ModelReply(
        content=reply.text,
        tool_calls=calls,
        finish_reason=reply.finish_reason or ("tool_calls" if calls else "stop"),
        usage=Usage(tools + sum(map(_tokens_of, request.messages)), estimate_tokens(said)),
        model=request.model,
        refusal=reply.refusal,
    )


def _tokens_of(message: dict[str, Any]) -> int:
    """About what a server would count: a message of a conversation comes again with every request."""
    content = message.get("content") or ""
    tokens = AROUND + estimate_again(content if isinstance(content, str) else json.dumps(content))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        tokens += AROUND + estimate_again(function["name"]) + estimate_again(function["arguments"])
    return tokens
