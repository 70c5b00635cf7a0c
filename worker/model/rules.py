"""What an endpoint takes: its rules, how a refusal changes them, and messages brought into their form.

Messages are built in one form for every endpoint. What only some of them take stands under private keys: a reply's
reasoning fields and the model they came from (`REASONING`), and what an endpoint added to a call (`SIGNATURE`).
`to_wire` puts them where the rules want them, or takes them away.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.model.errors import ModelError

REASONING = "_reasoning"  # in an assistant message: {"by": model, "fields": {...}}
SIGNATURE = "_extra_content"  # in a call: {"by": model, "value": {...}}
IMAGE_PLACEHOLDER = "[An image stood here. This model takes no images.]"
MOST_REFUSALS = 12  # of one model that are worked around: each can be met once

WireMessage = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What one model at one endpoint takes."""

    vision: bool = True
    reasoning: str = "drop"  # which assistant messages get their fields back: none, with calls, all
    user_after_tool: bool = True
    system_role: bool = True
    parallel_calls: bool = True  # in one assistant message
    null_content: bool = True
    id_format: str = "openai"  # mistral: exactly 9 letters and digits
    signatures: bool = False  # calls get back what the endpoint added to them
    streaming: bool = True
    include_usage: bool = True
    limit_field: str = "max_tokens"
    parameters: Mapping[str, Any] | None = None

    @property
    def form(self) -> str:
        """What they make of messages, in words: under the same words a conversation keeps the same bytes."""
        shaping = {name: getattr(self, name) for name in _SHAPING}
        return " ".join(f"{name}={value}" for name, value in shaping.items() if value != _SHAPING[name])


_SHAPING = {
    "vision": True,
    "reasoning": "drop",
    "user_after_tool": True,
    "system_role": True,
    "parallel_calls": True,
    "null_content": True,
    "id_format": "openai",
    "signatures": False,
}


def refused(rules: Rules, error: ModelError) -> dict[str, Any] | None:
    """What to remember of a refusal, so that `adapted` works around it; None where nothing more can be changed."""
    text = str(error)
    match error.capability:
        case "images" if rules.vision:
            return {"images": True}
        case "user_after_tool" if rules.user_after_tool:
            return {"user_after_tool": True}
        case "system" if rules.system_role:
            return {"system": True}
        case "parallel_calls" if rules.parallel_calls:
            return {"parallel_calls": True}
        case "null_content" if rules.null_content:
            return {"null_content": True}
        case "ids" if rules.id_format != "mistral":
            return {"ids": True}
        case "streaming" if rules.streaming:
            return {"streaming": True}
        case "reasoning":
            return {"reasoning": "tool_calls" if rules.reasoning == "drop" else "drop"}
        case "parameter":
            return _refused_parameter(rules, text)
    return None


def _refused_parameter(rules: Rules, text: str) -> dict[str, Any] | None:
    if rules.include_usage and "stream_options" in text:
        return {"stream_options": True}
    for name in rules.parameters or ():
        if re.search(rf"\b{re.escape(name)}\b", text):
            return {f"parameter {name}": True}
    if re.search(rf"\b{rules.limit_field}\b", text):
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        return {"limit_field": other[rules.limit_field]}
    return None


def adapted(rules: Rules, refusals: Mapping[str, Any]) -> Rules:
    """The rules once these refusals are known."""
    parameters = {
        name: value
        for name, value in (rules.parameters or {}).items()
        if not refusals.get(f"parameter {name}")
    }
    return replace(
        rules,
        vision=rules.vision and not refusals.get("images"),
        reasoning=refusals.get("reasoning", rules.reasoning),
        user_after_tool=rules.user_after_tool and not refusals.get("user_after_tool"),
        system_role=rules.system_role and not refusals.get("system"),
        parallel_calls=rules.parallel_calls and not refusals.get("parallel_calls"),
        null_content=rules.null_content and not refusals.get("null_content"),
        id_format="mistral" if refusals.get("ids") else rules.id_format,
        streaming=rules.streaming and not refusals.get("streaming"),
        include_usage=rules.include_usage and not refusals.get("stream_options"),
        limit_field=refusals.get("limit_field", rules.limit_field),
        parameters=parameters,
    )


# --- messages in the form that the rules want ---


def to_wire(messages: Iterable[WireMessage], rules: Rules, model: str) -> list[WireMessage]:
    """The messages as this model takes them, no private key left. What it is given stays as it was."""
    sent = [_message(message, rules, model) for message in messages]
    if not rules.parallel_calls:
        sent = list(_one_call_each(sent))
    if not rules.user_after_tool:
        sent = _joined_to_results(sent)
    if not rules.system_role:
        sent = _without_system(sent)
    return sent


def _message(message: WireMessage, rules: Rules, model: str) -> WireMessage:
    role = message["role"]
    if role == "assistant":
        return _assistant(message, rules, model)
    if role == "tool" and rules.id_format == "mistral":
        return {**message, "tool_call_id": short_id(message["tool_call_id"])}
    if not rules.vision and isinstance(message.get("content"), list):
        return {**message, "content": _as_text(message["content"])}
    return message


def _assistant(message: WireMessage, rules: Rules, model: str) -> WireMessage:
    sent = {name: value for name, value in message.items() if name != REASONING}
    if calls := message.get("tool_calls"):
        sent["tool_calls"] = [_call(call, rules, model) for call in calls]
    if sent.get("content") is None and not rules.null_content:
        sent["content"] = ""
    said = message.get(REASONING)
    wanted = rules.reasoning == "all" or (rules.reasoning == "tool_calls" and calls)
    if said and wanted and said["by"] == model:  # another model's thoughts are no model's own
        sent |= said["fields"]
    return sent


def _call(call: WireMessage, rules: Rules, model: str) -> WireMessage:
    sent = {name: value for name, value in call.items() if name != SIGNATURE}
    added = call.get(SIGNATURE)
    if added and rules.signatures and added["by"] == model:
        sent["extra_content"] = added["value"]
    if rules.id_format == "mistral":
        sent["id"] = short_id(call["id"])
    return sent


_LETTERS = string.ascii_letters + string.digits


def short_id(identifier: str) -> str:
    """9 letters and digits, always the same for the same id."""
    number = int.from_bytes(hashlib.sha256(identifier.encode("utf-8", "replace")).digest()[:8])
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_LETTERS))
        digits.append(_LETTERS[digit])
    return "".join(digits)


def _as_text(parts: list[Any]) -> str:
    texts = (
        part["text"] if isinstance(part, dict) and part.get("type") == "text" else IMAGE_PLACEHOLDER
        for part in parts
    )
    return "\n\n".join(text for text in texts if text)


def _one_call_each(messages: list[WireMessage]) -> Iterator[WireMessage]:
    """A message with several calls becomes several, each followed by its result."""
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    placed: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            for position, call in enumerate(calls):
                content = message.get("content") if position == 0 else ""
                yield {**message, "content": content, "tool_calls": [call]}
                yield results[call["id"]]
                placed.add(call["id"])
        elif message["role"] != "tool" or message["tool_call_id"] not in placed:
            yield message


def _joined_to_results(messages: list[WireMessage]) -> list[WireMessage]:
    """What would follow a result as a user's text ends the result instead; images cannot, and stay a message."""
    joined: list[WireMessage] = []
    for message in messages:
        follows = bool(joined) and joined[-1]["role"] == "tool" and message["role"] == "user"
        if follows and isinstance(message["content"], str):
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _without_system(messages: list[WireMessage]) -> list[WireMessage]:
    """The system message's text stands first in the user message after it."""
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return messages
    system, head, *rest = messages
    content = head["content"]
    if isinstance(content, str):
        content = f"{system['content']}\n\n{content}"
    else:
        content = [{"type": "text", "text": system["content"]}, *content]
    return [{**head, "content": content}, *rest]
