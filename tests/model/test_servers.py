"""One call of a tool in the form in which each kind of server streams it, as its documentation shows: the same reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.model.calling import DONE, ask_raw, event
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.types import Usage

ARGUMENTS = '{"path": "a"}'
ID = "call_0123456789abcdef"
USUAL = Usage(20, 9)


@dataclass(frozen=True)
class Stream:
    """The bytes, and what is special in the reply that they are."""

    pieces: tuple[bytes, ...]
    usage: Usage = USUAL
    content: str | None = None
    reasoning: dict[str, Any] | None = None
    raw_id: str = ID
    extra: dict[str, Any] | None = field(default=None)


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """`more` stands beside the choices, where a server puts things of its own; `choice_…` in the choice."""
    own = {name.removeprefix("choice_"): more.pop(name) for name in [*more] if name.startswith("choice_")}
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, **own}]
    return event({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choices, **more})


def tool(
    arguments: str = ARGUMENTS, *, index: int | None = 0, identifier: str = ID, **more: Any
) -> dict[str, Any]:
    call = {
        "id": identifier,
        "type": "function",
        "function": {"name": "Read", "arguments": arguments},
        **more,
    }
    return {"tool_calls": [call if index is None else {"index": index, **call}]}


def argument(text: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": text, **more}}]}


COUNTED = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
OPENING = chunk({"role": "assistant", "content": None})
FILTERED: dict[str, Any] = {"content_filter_results": {}}

STREAMS: dict[str, Stream] = {
    "OpenAI: the usage in a chunk of its own": Stream(
        (
            chunk({"role": "assistant", "content": None, "refusal": None, **tool("")}, usage=None),
            chunk(argument('{"path"'), usage=None),
            chunk(argument(': "a"}'), usage=None),
            chunk({}, "tool_calls", usage=None),
            chunk(None, usage={**COUNTED, "prompt_tokens_details": {"cached_tokens": 16}}),
            DONE,
        ),
        usage=Usage(20, 9, 16),
    ),
    "Azure: a first chunk without choices, filters everywhere": Stream(
        (
            chunk(None, model="", prompt_filter_results=[{"prompt_index": 0, **FILTERED}]),
            chunk({"role": "assistant", "content": None, **tool("")}, choice_content_filter_results={}),
            chunk(argument(ARGUMENTS), choice_content_filter_results={}),
            chunk({}, "tool_calls", choice_content_filter_results={}),
            chunk(None, usage=COUNTED),
            DONE,
        )
    ),
    "Gemini: whole calls with a signature, finished with stop, usage in each chunk": Stream(
        (
            chunk(
                {
                    "role": "assistant",
                    **tool(
                        extra_content={"google": {"thought_signature": "s"}}, identifier="function-call-1"
                    ),
                },
                usage={**COUNTED, "completion_tokens": 1},
            ),
            chunk({"role": "assistant"}, "stop", usage=COUNTED),
            DONE,
        ),
        raw_id="function-call-1",
        extra={"google": {"thought_signature": "s"}},
    ),
    "Mistral: thoughts as parts of the content, the call in the last chunk with the usage": Stream(
        (
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            chunk({"content": [{"type": "text", "text": "Reading."}]}),
            chunk({"content": "", **tool(identifier="D681PevKs")}, "tool_calls", usage=COUNTED),
            DONE,
        ),
        content="Reading.",
        reasoning={"thinking": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        raw_id="D681PevKs",
    ),
    "DeepSeek: comments to keep the line open, thoughts first, cache hits": Stream(
        (
            b": keep-alive\n\n",
            chunk({"role": "assistant", "content": None, "reasoning_content": "h"}),
            chunk({"content": None, "reasoning_content": "m"}),
            chunk({"content": "", "reasoning_content": None}),
            chunk(tool("")),
            chunk(argument(ARGUMENTS)),
            chunk({"content": ""}, "tool_calls", usage={**COUNTED, "prompt_cache_hit_tokens": 8}),
            DONE,
        ),
        usage=Usage(20, 9, 8),
        reasoning={"reasoning_content": "hm"},
    ),
    "OpenRouter: comments, thoughts twice over, usage beside an empty delta": Stream(
        (
            b": OPENROUTER PROCESSING\n\n",
            chunk(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": "hm",
                    "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}],
                },
                provider="P",
            ),
            chunk({"role": "assistant", "content": None, **tool()}, provider="P"),
            chunk({"role": "assistant", "content": ""}, "tool_calls", choice_native_finish_reason="tool_use"),
            chunk({"role": "assistant", "content": ""}, usage={**COUNTED, "cost": 0.1}),
            DONE,
        ),
        reasoning={
            "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}],
        },
    ),
    "LiteLLM: members that are null": Stream(
        (
            chunk({"role": "assistant", "content": None, "function_call": None, "audio": None, **tool("")}),
            chunk({"content": None, "role": None, **argument(ARGUMENTS, name=None)}),
            chunk({"content": None, "tool_calls": None}, "tool_calls"),
            chunk({"content": None, "role": None}, usage=COUNTED),
            DONE,
        )
    ),
    "Ollama: whole calls in one delta": Stream(
        (
            chunk({"role": "assistant", "content": "", "reasoning": "hm"}, system_fingerprint="fp_ollama"),
            chunk({"role": "assistant", "content": "", **tool()}, system_fingerprint="fp_ollama"),
            chunk({"role": "assistant", "content": ""}, "tool_calls", system_fingerprint="fp_ollama"),
            chunk(None, usage=COUNTED),
            DONE,
        ),
        reasoning={"reasoning": "hm"},
    ),
    "vLLM: long ids of its own, further members": Stream(
        (
            chunk({"role": "assistant", "content": ""}, choice_logprobs=None, prompt_token_ids=None),
            chunk({"reasoning_content": "hm"}, choice_token_ids=None),
            chunk(tool("", identifier="chatcmpl-tool-" + "0" * 32)),
            chunk(argument(ARGUMENTS)),
            chunk({}, "tool_calls", choice_stop_reason=None),
            chunk(None, usage=COUNTED),
            DONE,
        ),
        reasoning={"reasoning_content": "hm"},
        raw_id="chatcmpl-tool-" + "0" * 32,
    ),
    "llama.cpp: timings beside the usage": Stream(
        (
            OPENING,
            chunk(tool("{", identifier="7kTnzqKSvwzQ2hPbGPOMxfQvCLFJxmWJ")),
            chunk(argument('"path": "a"}')),
            chunk({}, "tool_calls"),
            chunk(None, usage=COUNTED, timings={"prompt_n": 20, "predicted_n": 9}),
            DONE,
        ),
        raw_id="7kTnzqKSvwzQ2hPbGPOMxfQvCLFJxmWJ",
    ),
}


@pytest.mark.parametrize("server", STREAMS)
def test_every_server_s_stream_is_the_same_reply(server: str) -> None:
    stream = STREAMS[server]
    reply = ask_raw(*stream.pieces)
    [call] = reply.tool_calls
    assert (call.name, call.arguments, call.raw_id, call.extra) == (
        "Read",
        ARGUMENTS,
        stream.raw_id,
        stream.extra,
    )
    assert len(call.id) <= 40
    assert (reply.content, reply.reasoning, reply.refusal) == (stream.content, stream.reasoning, None)
    assert (reply.finish_reason, reply.usage) == ("tool_calls", stream.usage)


@pytest.mark.parametrize("server", STREAMS)
def test_the_same_stream_cut_before_its_end_is_nothing(server: str) -> None:
    """Up to the chunk that finishes the reply: whatever stands there, its call is not run."""
    pieces = STREAMS[server].pieces
    finish = next(at for at, piece in enumerate(pieces) if b'"finish_reason": "' in piece)
    with pytest.raises(ModelError) as caught:
        ask_raw(*pieces[:finish])
    assert caught.value.kind is ModelErrorKind.INTERRUPTED
