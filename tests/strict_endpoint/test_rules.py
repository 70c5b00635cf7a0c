"""The strict endpoint refuses what it must, rule by rule, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.strict_endpoint.rules import (
    IMAGE_TOKENS,
    Profile,
    Refused,
    check,
    check_prefix,
    check_window,
    parse,
    prompt_tokens,
)

Body = dict[str, Any]


def tool_call(identifier: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": "Read", "arguments": arguments}}


def result(identifier: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": "text"}


def good() -> Body:
    """A request of every kind of message; each test breaks one thing in it."""
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": None, "tool_calls": [tool_call("a"), tool_call("b")]},
            result("a"),
            result("b"),
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}],
            },
            {"role": "assistant", "content": "hm", "tool_calls": [tool_call("c")]},
            result("c"),
        ],
        "tools": [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}],
    }


def test_a_good_request_passes() -> None:
    body = parse(json.dumps(good()).encode())
    check(body, Profile())


def user(text: str = "x") -> dict[str, Any]:
    return {"role": "user", "content": text}


def answers(*calls: dict[str, Any]) -> Callable[[Body], None]:
    """Put other calls into the last assistant message, each with its result."""

    def change(body: Body) -> None:
        body["messages"][6]["tool_calls"] = list(calls)
        body["messages"][7:] = [result(call["id"]) for call in calls]

    return change


BREAKS: dict[str, tuple[str, Callable[[Body], Any]]] = {
    "no system message": ("system", lambda body: body["messages"].pop(0)),
    "a second system message": (
        "system",
        lambda body: body["messages"].insert(5, {"role": "system", "content": "x"}),
    ),
    "the system message elsewhere": ("system", lambda body: body["messages"].insert(0, user())),
    "two user messages in a row": ("order", lambda body: body["messages"].insert(5, user())),
    "no user message at first": ("order", lambda body: body["messages"].pop(1)),
    "an assistant message last": (
        "order",
        lambda body: body["messages"].append({"role": "assistant", "content": "x"}),
    ),
    "a call without result": ("pairing", lambda body: body["messages"].pop(4)),
    "the last call without result": (
        "pairing",
        lambda body: body["messages"][6]["tool_calls"].append(tool_call("d")),
    ),
    "two results for one call": ("pairing", lambda body: body["messages"].insert(4, result("a"))),
    "a result without call": ("pairing", lambda body: body["messages"].append(result("z"))),
    "something between calls and results": ("pairing", lambda body: body["messages"].insert(4, user())),
    "an id used twice": ("ids", answers(tool_call("a"))),
    "an id used twice in a batch": ("ids", answers(tool_call("d"), tool_call("d"))),
    "an empty id": ("ids", answers(tool_call(""))),
    "an id of 41 characters": ("ids", answers(tool_call("x" * 41))),
    "neither content nor calls": (
        "empty",
        lambda body: body["messages"].insert(5, {"role": "assistant", "content": ""}),
    ),
    "an empty user message": ("empty", lambda body: body["messages"][1].update(content="")),
    "half arguments": ("arguments", answers(tool_call("d", '{"a'))),
    "a list as arguments": ("arguments", answers(tool_call("d", "[]"))),
    "null as arguments": ("arguments", answers(tool_call("d", "null"))),
    "no arguments": ("arguments", answers(tool_call("d", ""))),
    "tool messages without schemas": ("tools", lambda body: body.pop("tools")),
    "an empty list of tools": ("tools", lambda body: body["tools"].clear()),
    "two tools of one name": ("tools", lambda body: body["tools"].append(body["tools"][0])),
    "an image in a tool message": (
        "shape",
        lambda body: body["messages"][3].update(content=[{"type": "image_url"}]),
    ),
    "an unknown key": ("shape", lambda body: body["messages"][1].update(seq=7)),
    "reasoning sent back": ("shape", lambda body: body["messages"][6].update(reasoning_content="hm")),
    "an unknown role": ("shape", lambda body: body["messages"][1].update(role="developer")),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule_refuses_what_it_must(name: str) -> None:
    rule, change = BREAKS[name]
    body = good()
    change(body)
    with pytest.raises(Refused) as caught:
        check(body, Profile())
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model": "m\xff"}',
        b'{"model": "m"',
        b'{"model": "\\ud83d"}',
        b'{"model": "a\\u0000b"}',
        b'{"\\ud83d": 1}',
    ],
    ids=["not UTF-8", "not JSON", "a lone surrogate", "NUL", "a lone surrogate in a key"],
)
def test_bytes_that_no_server_takes(raw: bytes) -> None:
    with pytest.raises(Refused) as caught:
        parse(raw)
    assert caught.value.rule == "bytes"


def test_profiles_refuse_more() -> None:
    with pytest.raises(Refused, match=r"after role .tool."):
        check(good(), Profile(user_after_tool=False))
    with pytest.raises(Refused) as caught:
        check(good(), Profile(vision=False))
    assert caught.value.rule == "vision"
    body = good()
    body["messages"][6]["reasoning_content"] = "hm"
    check(body, Profile(reasoning=True))


def test_prompt_and_output_must_fit_the_window() -> None:
    """Schemas and the output limit count; an image has one price."""
    body = good()
    prompt = prompt_tokens(body)
    assert prompt > IMAGE_TOKENS
    check_window(body, prompt)
    check_window({**body, "max_tokens": 100}, prompt + 100)
    for bigger in (
        {"max_tokens": 101},
        {"max_completion_tokens": 101},
        {"tools": body["tools"] * 30, "max_tokens": 100},
    ):
        with pytest.raises(Refused) as caught:
            check_window({**body, **bigger}, prompt + 100)
        assert caught.value.rule == "window"


def grown(change: Callable[[list[dict[str, Any]]], Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    before = good()["messages"]
    after = copy.deepcopy(before)
    change(after)
    return before, after


def test_a_conversation_may_grow() -> None:
    check_prefix(*grown(lambda after: after.append(user())), Profile())
    check_prefix([], good()["messages"], Profile())


def test_text_may_be_merged_into_the_last_user_message_only() -> None:
    first = good()["messages"][:2]
    check_prefix(first, [first[0], user("do it\n\nand that")], Profile())
    check_prefix(
        first, [first[0], {"role": "user", "content": [{"type": "text", "text": "do it"}]}], Profile()
    )
    with pytest.raises(Refused, match=r"messages\[1\]"):
        check_prefix(*grown(lambda after: after[1].update(content="do it\n\nand that")), Profile())
    with pytest.raises(Refused):
        check_prefix(first, [first[0], user("do this")], Profile())


def test_text_may_end_the_last_result_only_where_no_user_message_may_follow_it() -> None:
    before, after = grown(lambda after: after[-1].update(content="text\n\na comment"))
    check_prefix(before, after, Profile(user_after_tool=False))
    with pytest.raises(Refused):
        check_prefix(before, after, Profile())


@pytest.mark.parametrize(
    "change",
    [
        lambda after: after[0].update(content="S"),
        lambda after: after.pop(),
        lambda after: after.pop(3),
        lambda after: after[2]["tool_calls"][0]["function"].update(arguments='{"a": 1}'),
    ],
    ids=["system changed", "shorter", "a message gone", "a call changed"],
)
def test_a_rewritten_history_is_refused(change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """A prefix that holds keeps a provider's prompt cache warm."""
    with pytest.raises(Refused) as caught:
        check_prefix(*grown(change), Profile())
    assert caught.value.rule == "prefix"
