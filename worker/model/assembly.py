"""From the chunks of a stream (or one whole completion) to a ModelReply.

Servers cut and label tool calls in many ways; the presence of calls decides what a reply is, not its label. Nothing
here guesses at missing text: whether the stream ended properly is asked of `ended`, and a reply that did not end is
thrown away whole by the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storage.text import valid_json, valid_text
from worker.model.errors import ModelError, ModelErrorKind, one_line
from worker.model.types import ModelReply, ToolCall, Usage
from worker.model.wire import mint_call_id

_FINISH = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "sensitive": "content_filter",
}
# Labels that say the generation broke: what was streamed so far is no answer.
_BROKEN = {"error", "abort", "network_error", "insufficient_system_resource"}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
_MAX_NAME = 200  # characters of a tool's name or raw id that are worth keeping
_MAX_TOKENS = 1_000_000_000  # a count beyond it is a broken server's


@dataclass(slots=True)
class _Call:
    index: object
    raw_id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] | None = None

    def is_complete(self) -> bool:
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        return _parses("".join(self.arguments))


class ReplyBuilder:
    """Add the JSON of each chunk, then ask for the reply."""

    def __init__(self, origin: str, model: str, mint: Callable[[], str] = mint_call_id) -> None:
        self._origin = origin
        self._model = model
        self._mint = mint
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: dict[str, list[Any]] = {}
        self._calls: list[_Call] = []
        self._usage = Usage(None, None)
        self._finish: str | None = None
        self._saw_choice = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Did the model, or the stream's own end mark, say that the reply is whole?"""
        return self._ended

    def end(self) -> None:
        """Note the stream's own end mark."""
        self._ended = True

    def add(self, chunk: dict[str, Any]) -> None:
        """Take a chunk's (or a whole completion's) content. Raises ModelError where the server says it broke."""
        model = chunk.get("model")
        if isinstance(model, str) and model:
            self._model = one_line(model, 200)
        self._take_usage(chunk.get("usage") or _mapping(chunk.get("x_groq")).get("usage"))
        choice = _first_choice(chunk.get("choices"))
        if choice is None:
            return
        self._saw_choice = True
        # A whole message at the end of a stream only repeats what its deltas said.
        part = choice.get("delta") or (None if self._has_anything() else choice.get("message"))
        if isinstance(part, dict):
            self._take_part(part)
        elif isinstance(choice.get("text"), str):
            self._content.append(choice["text"])
        self._take_finish(choice.get("finish_reason"))

    def reply(self) -> ModelReply:
        """The whole reply, which may be empty. Raises ModelError where no choice ever came."""
        if not self._saw_choice:
            raise ModelError(ModelErrorKind.TRANSIENT, f"{self._origin}: the answer holds no choices")
        calls = tuple(self._tool_call(call) for call in self._calls)
        refusal = valid_text("".join(self._refusal)) or None
        finish = _FINISH.get(self._finish or "", "tool_calls" if calls else "stop")
        return ModelReply(
            content=valid_text("".join(self._content)) or None,
            tool_calls=calls,
            finish_reason="content_filter" if refusal and not calls else finish,
            usage=self._usage,
            model=self._model,
            refusal=refusal,
            reasoning={name: _joined(parts) for name, parts in self._reasoning.items()} or None,
        )

    def so_far(self) -> tuple[str, str, list[tuple[str, str]]]:
        """Text, reasoning and calls (name, arguments) as far as they have come. From any thread, while pieces arrive."""
        thoughts = [part for parts in list(self._reasoning.values()) for part in list(parts)]
        calls = [(call.name, "".join(call.arguments)) for call in list(self._calls)]
        return "".join(self._content), "".join(part for part in thoughts if isinstance(part, str)), calls

    def _has_anything(self) -> bool:
        return bool(self._content or self._calls or self._refusal or self._reasoning)

    def _tool_call(self, call: _Call) -> ToolCall:
        return ToolCall(
            id=self._mint(),
            name=valid_text(call.name)[:_MAX_NAME],
            arguments=valid_text("".join(call.arguments)),
            raw_id=valid_text(call.raw_id)[:_MAX_NAME],
            extra=valid_json(call.extra),
        )

    def _take_finish(self, reason: object) -> None:
        if not isinstance(reason, str) or not reason:
            return
        label = reason.lower()
        if label in _BROKEN:
            raise ModelError(ModelErrorKind.INTERRUPTED, f"{self._origin}: the model stopped with {label!r}")
        self._finish = label
        self._ended = True

    def _take_part(self, part: dict[str, Any]) -> None:
        self._take_content(part.get("content"))
        if isinstance(part.get("refusal"), str):
            self._refusal.append(part["refusal"])
        for name in _REASONING_FIELDS:
            value = part.get(name)
            if isinstance(value, str):  # an empty one counts: some servers demand the field back
                self._reasoning.setdefault(name, []).append(value)
            elif isinstance(value, list):
                self._reasoning.setdefault(name, []).extend(value)
        deltas = part.get("tool_calls")
        for position, delta in enumerate([deltas] if isinstance(deltas, dict) else _items(deltas)):
            if isinstance(delta, dict):
                # Calls listed together without an index are calls of their own.
                together = position > 0 and delta.get("index") is None
                self._take_call({**delta, "index": f"together {position}"} if together else delta)
        if isinstance(part.get("function_call"), dict):
            self._take_call({"index": "function_call", "function": part["function_call"]})

    def _take_content(self, content: object) -> None:
        """Text, or a list of typed parts as Mistral sends it."""
        if isinstance(content, str):
            self._content.append(content)
        for piece in _items(content):
            if isinstance(piece, dict) and isinstance(piece.get("text"), str):
                self._content.append(piece["text"])
            elif isinstance(piece, dict) and "thinking" in piece:
                self._reasoning.setdefault("thinking", []).append(piece)

    def _take_call(self, delta: dict[str, Any]) -> None:
        function = _mapping(delta.get("function"))
        raw_id = delta["id"] if isinstance(delta.get("id"), str) else ""
        name = function["name"] if isinstance(function.get("name"), str) else ""
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = self._continued(delta.get("index"), raw_id, name, arguments or "")
        if call is None:
            call = _Call(delta.get("index"), raw_id)
            self._calls.append(call)
        call.raw_id = call.raw_id or raw_id
        if name != call.name:  # a name repeated with every piece is not a longer name
            call.name += name
        if arguments:
            call.arguments.append(arguments)
        if isinstance(delta.get("extra_content"), dict):
            call.extra = delta["extra_content"]

    def _continued(self, index: object, raw_id: str, name: str, arguments: str) -> _Call | None:
        """The call this delta goes on with; None where it begins a new one.

        Indices are reused, missing or wrong, ids empty or doubled. So another id always begins a call; without one, a
        name does where the call before it is complete.
        """
        found = next((call for call in reversed(self._calls) if call.index == index), None)
        placed = found is not None and index is not None
        if found is None or not placed:
            found = self._calls[-1] if self._calls else None
        if found is None or (raw_id and raw_id != found.raw_id and (found.raw_id or not placed)):
            return None
        if not name:
            return found
        if index is not None and not placed:
            return None
        # The same name again, with nothing new, is a server that repeats itself in every piece.
        says_more = bool(arguments) or name != found.name
        return None if says_more and found.is_complete() else found

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = _mapping(usage.get("prompt_tokens_details"))
        cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
        self._usage = Usage(
            prompt_tokens=_count(usage.get("prompt_tokens")) or None,
            completion_tokens=_count(usage.get("completion_tokens")) or None,
            cached_tokens=_count(cached),
        )


def _first_choice(choices: object) -> dict[str, Any] | None:
    """The choice we asked for; more than one is not asked for."""
    for choice in _items(choices):
        if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
            return choice
    return None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_TOKENS:
        return None
    return value


def _joined(parts: list[Any]) -> Any:
    if all(isinstance(part, str) for part in parts):
        return valid_text("".join(parts))
    return valid_json(parts)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
