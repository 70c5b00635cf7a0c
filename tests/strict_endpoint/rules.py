"""What makes a request unacceptable to the pickiest of servers. Pure functions: a body in, a Violation out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from worker.tokens import estimate_tokens

MAX_ID = 40
IMAGE_TOKENS = 800
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_REASONING = {"reasoning_content", "reasoning", "reasoning_details"}

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule; `label` is the call's, so that a test can say whose it was."""

    rule: str
    message: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """How this server differs: all are refusals of some real server."""

    window: int | None = None
    user_after_tool: bool = True  # False: a user message right after a tool message is refused
    vision: bool = True
    reasoning: bool = False  # True: assistant messages may carry reasoning fields
    system_role: bool = True  # False: a system message is refused


class Refused(Exception):
    """Raised for the first broken rule."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def parse(raw: bytes) -> dict[str, Any]:
    """The request's JSON. Raises Refused where its bytes are not what a strict server takes."""
    try:
        text = raw.decode("utf-8")
        body = json.loads(text)
    except UnicodeDecodeError as error:
        raise Refused("bytes", f"the body is not UTF-8: {error}") from None
    except ValueError as error:
        raise Refused("bytes", f"the body is not JSON: {error}") from None
    for place, string in _strings(body, "body"):
        if "\0" in string:
            raise Refused("bytes", f"{place} holds NUL")
        if not _encodable(string):
            raise Refused("bytes", f"{place} holds a lone surrogate")
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise Refused("shape", "`messages` must be a list of messages")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("shape", "`model` must be a name")
    return body


def check(body: dict[str, Any], profile: Profile) -> None:
    """Raises Refused for the first rule the request breaks, whatever came before it."""
    messages = body["messages"]
    for index, message in enumerate(messages):
        _check_message(f"messages[{index}]", message, profile)
    _check_order(messages, profile)
    _check_calls(messages)
    _check_tools(body)


def check_window(body: dict[str, Any], window: int) -> None:
    """Raises Refused where prompt + max output do not fit."""
    prompt = prompt_tokens(body)
    output = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    if prompt + output > window:
        raise Refused(
            "window",
            f"This model's maximum context length is {window} tokens. However, you requested {prompt + output} tokens "
            f"({prompt} in the messages, {output} in the completion).",
        )


def check_prefix(previous: list[Message], messages: list[Message], profile: Profile) -> None:
    """Raises Refused unless `previous` is a prefix, but for text merged into its last user message.

    Where a server takes no user message after a tool message, that text ends the last tool result instead.
    """
    for index, before in enumerate(previous):
        if index >= len(messages):
            raise Refused(
                "prefix", f"the request is shorter than the one before it: messages[{index}] is gone"
            )
        growing = before["role"] == "user" or (before["role"] == "tool" and not profile.user_after_tool)
        is_last = index == len(previous) - 1
        if messages[index] == before or (is_last and growing and _extends(messages[index], before)):
            continue
        raise Refused(
            "prefix",
            f"messages[{index}] is not what it was in the request before: {_difference(before, messages[index])}",
        )


def prompt_tokens(body: dict[str, Any]) -> int:
    """What the endpoint says the prompt costs: every text, call and schema; an image has one price."""
    total = estimate_tokens(json.dumps(body["tools"], ensure_ascii=False)) if body.get("tools") else 0
    for message in body["messages"]:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        total += sum(estimate_tokens(part["text"]) if "text" in part else IMAGE_TOKENS for part in parts)
        for call in message.get("tool_calls") or ():
            total += estimate_tokens(call["function"]["name"] + call["function"]["arguments"])
    return total


def _check_message(place: str, message: object, profile: Profile) -> None:
    if not isinstance(message, dict) or message.get("role") not in _KEYS:
        raise Refused("shape", f"{place} has no known role")
    role = message["role"]
    extra = (
        message.keys() - _KEYS[role] - (_REASONING if profile.reasoning and role == "assistant" else set())
    )
    if extra:
        raise Refused("shape", f"{place} ({role}) has unknown keys: {', '.join(sorted(extra))}")
    content = message.get("content")
    if role == "user":
        _check_user(place, content, profile)
    elif role != "assistant" and not isinstance(content, str):
        raise Refused("shape", f"{place} ({role}) needs a text as its content")
    elif role == "assistant":
        if content is not None and not isinstance(content, str):
            raise Refused("shape", f"{place} (assistant) needs a text or null as its content")
        if not content and not message.get("tool_calls"):
            raise Refused("empty", f"{place} (assistant) has neither content nor calls")


def _check_user(place: str, content: object, profile: Profile) -> None:
    if isinstance(content, str):
        if not content:
            raise Refused("empty", f"{place} (user) is empty")
        return
    for part in content if isinstance(content, list) and content else [None]:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict) and kind == "text" and isinstance(part.get("text"), str) and part["text"]:
            continue
        if isinstance(part, dict) and kind == "image_url" and isinstance(part.get("image_url"), dict):
            if not profile.vision:
                raise Refused("vision", "image input is not supported by this model")
            continue
        raise Refused("shape", f"{place} (user) needs a text, or parts of text and image_url")


def _check_order(messages: list[Message], profile: Profile) -> None:
    roles = [message["role"] for message in messages]
    if not profile.system_role:
        if "system" in roles:
            raise Refused("no_system", "System role not supported")
        roles = ["system", *roles]  # what follows is the same as for others
    if roles[0] != "system" or roles.count("system") != 1:
        raise Refused(
            "system", f"exactly one system message, at index 0; this request has them at {_places(roles)}"
        )
    if roles[1:2] != ["user"]:
        raise Refused("order", "messages[1] must be a user message")
    if roles[-1] not in ("user", "tool"):
        raise Refused("order", "the last message must be a user message or a tool result")
    for index in range(1, len(roles)):
        if roles[index] == roles[index - 1] == "user":
            raise Refused(
                "order", f"messages[{index - 1}] and messages[{index}] are two user messages in a row"
            )
        if not profile.user_after_tool and roles[index - 1 : index + 1] == ["tool", "user"]:
            raise Refused("order", f"Unexpected role 'user' after role 'tool' at messages[{index}]")


def _check_calls(messages: list[Message]) -> None:
    seen: set[str] = set()
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message["role"] == "tool":
            answered = message.get("tool_call_id")
            if answered not in open_ids:
                raise Refused("pairing", f"{place} answers {answered!r}, which is no open call")
            open_ids.remove(answered)
            continue
        if open_ids:
            raise Refused("pairing", f"{place} stands before the results of {', '.join(open_ids)}")
        for call in message.get("tool_calls") or ():
            _check_call(place, call, seen)
            open_ids.append(call["id"])
    if open_ids:
        raise Refused("pairing", f"no results for {', '.join(open_ids)}")


def _check_call(place: str, call: Any, seen: set[str]) -> None:
    identifier = call.get("id") if isinstance(call, dict) else None
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        raise Refused("shape", f"{place} has a call that is no function call")
    if not isinstance(identifier, str) or not 1 <= len(identifier) <= MAX_ID:
        raise Refused("ids", f"{place} has a call id of not 1 to {MAX_ID} characters: {identifier!r}")
    if identifier in seen:
        raise Refused("ids", f"{place} uses the call id {identifier!r} again")
    seen.add(identifier)
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise Refused("shape", f"{place} has a call without a name")
    try:
        arguments = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Refused("arguments", f"{place}: the arguments of {identifier} are no JSON object")


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        if any(message["role"] == "tool" or message.get("tool_calls") for message in body["messages"]):
            raise Refused("tools", "tool messages without tool schemas")
        return
    if not isinstance(tools, list) or not tools:
        raise Refused("tools", "`tools` must be a list with tools in it, or left out")
    names = []
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not _TOOL_NAME.fullmatch(str(function.get("name", ""))):
            raise Refused("tools", f"tools[{index}] is no function with a proper name")
        if not isinstance(function.get("parameters"), dict) or function["parameters"].get("type") != "object":
            raise Refused("tools", f"tools[{index}] needs a JSON schema of type object")
        names.append(function["name"])
    if len(set(names)) != len(names):
        raise Refused("tools", "two tools have the same name")


def _extends(message: Message, before: Message) -> bool:
    old, new = before.get("content"), message.get("content")
    if {**message, "content": None} != {**before, "content": None}:
        return False
    if isinstance(old, str) and isinstance(new, str):
        return new.startswith(old)
    old_parts = [{"type": "text", "text": old}] if isinstance(old, str) else old
    if not isinstance(old_parts, list) or not isinstance(new, list):
        return False
    return all(
        index < len(new)
        and (
            new[index] == part
            or (
                isinstance(part, dict)
                and "text" in part
                and new[index].get("text", "").startswith(part["text"])
            )
        )
        for index, part in enumerate(old_parts)
    )


def _difference(before: Message, after: Message) -> str:
    old, new = (json.dumps(message, ensure_ascii=False) for message in (before, after))
    start = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    low = max(start - 30, 0)
    return f"…{old[low : start + 50]!r} became …{new[low : start + 50]!r}"


def _places(roles: list[str]) -> str:
    return ", ".join(str(index) for index, role in enumerate(roles) if role == "system") or "none"


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, f"{place}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {place}", key
            yield from _strings(item, f"{place}.{key}")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
