"""What models and servers really answer, over real HTTP, and what becomes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.model.calling import DONE, ask, ask_raw, call_delta, delta, event
from tests.strict_endpoint import Call, Reply
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.types import ModelReply


def calls_of(reply: ModelReply) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reply.tool_calls]


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    given = {"name": name, "arguments": arguments}
    return {key: value for key, value in given.items() if value is not None}


def test_a_plain_streamed_reply() -> None:
    reply = ask(lambda _: Reply("Hello there, 世界.", reasoning={"reasoning_content": "hm"}))
    assert (reply.content, reply.tool_calls, reply.finish_reason) == ("Hello there, 世界.", (), "stop")
    assert reply.reasoning == {"reasoning_content": "hm"}
    assert reply.usage.prompt_tokens
    assert reply.usage.completion_tokens
    assert reply.model == "test-model"


def test_several_calls_in_one_reply() -> None:
    reply = ask(lambda _: Reply("both", calls=(Call("Read", {"path": "a"}), Call("Read", {"path": "b"}))))
    assert calls_of(reply) == [("Read", '{"path": "a"}'), ("Read", '{"path": "b"}')]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("raw_ids", [("e:1", "e:1"), ("", ""), ("x" * 50 + "|tool|1", "ok")])
def test_bad_ids_are_minted_anew(raw_ids: tuple[str, str]) -> None:
    """Whatever the server calls them, the wire ids are unique, short and plain."""
    reply = ask(lambda _: Reply(calls=tuple(Call("Read", {"n": n}, id=raw) for n, raw in enumerate(raw_ids))))
    assert [call.raw_id for call in reply.tool_calls] == list(raw_ids)
    minted = [call.id for call in reply.tool_calls]
    assert len(set(minted)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", identifier) for identifier in minted)


ONE = [("Read", '{"path": "a"}')]
TWO = [("Read", '{"path": "a"}'), ("Grep", '{"q": 1}')]
SHAPES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "a reused index with a new id begins a new call": (
        [
            {"index": 0, "id": "a", "function": function("Read", '{"path"')},
            {"index": 0, "function": function(arguments=': "a"}')},
            {"index": 0, "id": "b", "function": function("Grep", "")},
            {"index": 0, "function": function(arguments='{"q": 1}')},
        ],
        TWO,
    ),
    "a new id begins a new call though the one before it has no arguments": (
        [
            {"index": 0, "id": "a", "function": function("Read")},
            {"index": 0, "id": "b", "function": function("Grep", '{"q": 1}')},
        ],
        [("Read", ""), ("Grep", '{"q": 1}')],
    ),
    "a missing index with new ids": (
        [
            {"id": "a", "function": function("Read", '{"path": "a"}')},
            {"id": "b", "function": function("Grep", '{"q": 1}')},
        ],
        TWO,
    ),
    "neither index nor id": (
        [{"function": function("Read", '{"path": "a"}')}, {"function": function("Grep", '{"q": 1}')}],
        TWO,
    ),
    "index 0 for all, no ids": (
        [
            {"index": 0, "function": function("Read", '{"path": "a"}')},
            {"index": 0, "function": function("Grep", '{"q": 1}')},
        ],
        TWO,
    ),
    "id and name repeated in every piece": (
        [
            {"index": 0, "id": "a", "function": function("Read", '{"path"')},
            {"index": 0, "id": "a", "function": function("Read", ': "a"}')},
            {"index": 0, "id": "a", "function": function("Read", "")},
        ],
        ONE,
    ),
    "pieces without an index after the opening": (
        [
            {"index": 0, "id": "a", "function": function("Read", "")},
            {"function": function(arguments='{"path": ')},
            {"function": function(arguments='"a"}')},
        ],
        ONE,
    ),
    "the index counts pieces": (
        [
            {"index": 0, "id": "a", "function": function("Read", "")},
            {"index": 1, "id": "a", "function": function(arguments='{"path": "a"}')},
        ],
        ONE,
    ),
    "interleaved": (
        [
            {"index": 0, "id": "a", "function": function("Read", '{"path"')},
            {"index": 1, "id": "b", "function": function("Grep", '{"q"')},
            {"index": 0, "function": function(arguments=': "a"}')},
            {"index": 1, "function": function(arguments=": 1}")},
        ],
        TWO,
    ),
    "the same id for two calls": (
        [
            {"index": 0, "id": "e:1", "function": function("Read", '{"path": "a"}')},
            {"index": 1, "id": "e:1", "function": function("Grep", '{"q": 1}')},
        ],
        TWO,
    ),
    "arguments as an object": ([{"index": 0, "id": "a", "function": function("Read", {"path": "a"})}], ONE),
    "a name in two pieces": (
        [
            {"index": 0, "id": "a", "function": function("Re")},
            {"index": 0, "function": function("ad", '{"path": "a"}')},
        ],
        ONE,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_call_deltas_in_every_shape(shape: str) -> None:
    deltas, expected = SHAPES[shape]
    reply = ask_raw(*(call_delta(piece) for piece in deltas), delta(finish="tool_calls"), DONE)
    assert calls_of(reply) == expected
    assert len({call.id for call in reply.tool_calls}) == len(expected)


def test_two_calls_in_one_delta_without_index_or_arguments() -> None:
    pieces = [{"function": function("Read", "")}, {"function": function("Grep", '{"q": 1}')}]
    assert calls_of(ask_raw(call_delta(*pieces), DONE)) == [("Read", ""), ("Grep", '{"q": 1}')]


def test_the_old_function_call_field() -> None:
    pieces = [
        delta(function_call=function("Read", '{"path"')),
        delta(function_call=function(arguments=': "a"}')),
    ]
    assert calls_of(ask_raw(*pieces, delta(finish="function_call"), DONE)) == ONE


@pytest.mark.parametrize("arguments", ['{"cmd":"ls', "[]", "null", '"ls"', "", "{" * 200_000])
def test_bad_arguments_arrive_as_the_model_wrote_them(arguments: str) -> None:
    """Invalid or no object: judging them is the agent's; a sibling call is untouched."""
    reply = ask(lambda _: Reply(calls=(Call("Read", arguments), Call("Read", {"path": "b"}))))
    assert calls_of(reply) == [("Read", arguments), ("Read", '{"path": "b"}')]


def test_an_empty_reply_is_a_reply() -> None:
    """Neither content nor calls; bounding it is the agent's."""
    reply = ask_raw(delta(role="assistant", content=""), delta(finish="stop"), DONE)
    assert (reply.content, reply.tool_calls, reply.finish_reason) == (None, (), "stop")


@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        (Reply(refusal="I cannot help with that."), "I cannot help with that."),
        (Reply("partly", finish_reason="content_filter"), None),
        (Reply("no", finish_reason="refusal"), None),
    ],
)
def test_a_refusal_is_its_own_outcome(reply: Reply, refusal: str | None) -> None:
    """Neither an answer nor an error."""
    answer = ask(lambda _: reply)
    assert (answer.finish_reason, answer.refusal) == ("content_filter", refusal)


@pytest.mark.parametrize("label", ["length", "max_tokens"])
def test_length_is_kept_though_there_are_calls(label: str) -> None:
    """So that truncated calls are never run."""
    reply = ask(lambda _: Reply(calls=(Call("Write", '{"path": "a", "te'),), finish_reason=label))
    assert reply.finish_reason == "length"
    assert len(reply.tool_calls) == 1


@pytest.mark.parametrize("label", ["stop", "tool_calls", "function_call", "eos", None])
@pytest.mark.parametrize("calls", [(), (Call("Read", {"path": "a"}),)])
def test_the_presence_of_calls_decides_not_the_label(label: str | None, calls: tuple[Call, ...]) -> None:
    """Calls with `stop` are calls; `tool_calls` with none is text."""
    reply = ask(lambda _: Reply("text", calls=calls, finish_reason=label))
    assert reply.finish_reason == ("tool_calls" if calls else "stop")


def test_call_like_text_is_text() -> None:
    """No call is made of it."""
    reply = ask(lambda _: Reply('<tool_call>{"name": "Read", "arguments": {}}</tool_call>'))
    assert reply.tool_calls == ()
    assert reply.content


RATE = {"error": {"message": "slow down", "code": 429}}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"choices": null, "error": {"message": "Rate limit", "code": 429}}', ModelErrorKind.RATE_LIMIT),
        (b'{"choices": [{"error": {"message": "Provider down", "code": 502}}]}', ModelErrorKind.TRANSIENT),
        (b'{"error": {"message": "no credit", "code": 402}}', ModelErrorKind.QUOTA),
        (b"[]", ModelErrorKind.TRANSIENT),
        (b"null", ModelErrorKind.TRANSIENT),
        (b"{}", ModelErrorKind.TRANSIENT),
        (b'{"choices": []}', ModelErrorKind.TRANSIENT),
        (
            b'[{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}]',
            ModelErrorKind.BAD_REQUEST,
        ),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_inside_a_200(body: bytes, kind: ModelErrorKind, streamed: bool) -> None:
    """Classified by the embedded code, streamed or not."""
    pieces: tuple[bytes, ...] = (body,)
    content_type = "application/json"
    if streamed:
        pieces, content_type = (b"data: " + body + b"\n\n", DONE), "text/event-stream"
    with pytest.raises(ModelError) as caught:
        ask_raw(*pieces, content_type=content_type)
    assert caught.value.kind is kind


def test_an_error_after_a_good_beginning() -> None:
    """An SSE error inside a 200; what was streamed before is not kept."""
    with pytest.raises(ModelError) as caught:
        ask_raw(
            delta(content="Well, "),
            event({"error": {"message": "This model's maximum context length is 8192 tokens", "code": None}}),
            DONE,
        )
    assert caught.value.kind is ModelErrorKind.OVERFLOW


def test_llama_cpp_says_error_instead_of_data() -> None:
    with pytest.raises(ModelError) as caught:
        ask_raw(b'error: {"code":500,"message":"9001 tokens will not fit in 8192","type":"server_error"}\n\n')
    assert caught.value.kind is ModelErrorKind.OVERFLOW


def test_a_whole_completion_where_a_stream_was_asked_for() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [{"id": "1", "function": function("Read", "{}")}],
    }
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7},
    }
    reply = ask_raw(event(body)[6:], content_type="application/json")
    assert (reply.content, calls_of(reply), reply.usage.prompt_tokens) == ("hi", [("Read", "{}")], 7)


def test_a_web_page_is_no_answer() -> None:
    with pytest.raises(ModelError) as caught:
        ask_raw(b"<html>Log in to continue</html>", content_type="text/html; charset=utf-8")
    assert caught.value.kind is ModelErrorKind.TRANSIENT
    assert "OPENAI_BASE_URL" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}},
            (9, 4, 8),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 0}, (9, 4, 0)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (None, None, None)),
        ({"prompt_tokens": "many", "completion_tokens": -1}, (None, None, None)),
        (None, (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_usage_missing_or_zero_is_unknown(usage: object, expected: tuple[int | None, ...]) -> None:
    """Unknown, not zero: the caller estimates."""
    reply = ask_raw(delta(content="x"), delta(finish="stop"), event({"choices": [], "usage": usage}), DONE)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == expected


def test_reasoning_is_kept_apart_and_an_empty_one_too() -> None:
    """Under the server's own names."""
    reply = ask_raw(
        delta(reasoning_content="", content=None),
        delta(reasoning_details=[{"type": "reasoning.text", "text": "so"}]),
        delta(content=[{"type": "text", "text": "answer"}]),
        delta(finish="stop"),
        DONE,
    )
    assert reply.content == "answer"
    assert reply.reasoning == {
        "reasoning_content": "",
        "reasoning_details": [{"type": "reasoning.text", "text": "so"}],
    }


def test_surrogates_from_the_model_are_mended() -> None:
    """A pair cut between two chunks is joined, a lone half replaced."""
    reply = ask_raw(
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00 and \\ud83d"}}]}\n\n',
        delta(finish="stop"),
        DONE,
    )
    assert reply.content == "😀 and \ufffd"


@pytest.mark.parametrize(
    "body",
    [
        b'data:{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\r\n\r\ndata:[DONE]\r\n\r\n',
        b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\ndata: {"choices":[]}\n\n',
        b': ping\n\nevent: x\nid: 7\ndata: {"choices":[{"delta":{"content":"ok"}}]}\n\ndata: [DONE]',
        b'data: {"choices":\ndata: [{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\r\rdata: [DONE]\r\r',
    ],
    ids=["no blank, CRLF", "no blank line between", "no end of line", "an event of two lines", "CR"],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_streams_in_any_dress_and_any_cut(body: bytes, size: int) -> None:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    assert ask_raw(*pieces).content == "ok"
