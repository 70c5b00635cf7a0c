"""Every dialect of refusal, and what it amounts to. Pure functions."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.model.classify import MAX_RETRY_AFTER, endpoint_error, is_error, retry_after
from worker.model.errors import MAX_DETAIL, ModelErrorKind, one_line


def kind_of(status: int, body: Any, headers: dict[str, str] | None = None) -> ModelErrorKind:
    return endpoint_error("host", status, body, headers or {}).kind


def message(text: str, code: object = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "code": code, "param": None}}


OVERFLOWS: list[tuple[int, Any]] = [
    (400, {"error": {"code": "context_length_exceeded"}}),
    (
        400,
        message(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
        ),
    ),
    (
        400,
        {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9001, "n_ctx": 8192}},
    ),
    (400, message("the request exceeds the available context size, try increasing it", 400, "")),
    (
        400,
        {"object": "error", "message": "Requested tokens (9001) exceed context window of 8192", "code": None},
    ),
    (413, b"<html><h1>413 Request Entity Too Large</h1></html>"),
    (
        413,
        {
            "type": "error",
            "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"},
        },
    ),
    (500, message("9001 tokens will not fit in 8192")),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 200251 tokens > 199999 maximum",
            },
        },
    ),
    (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (9001) exceeds the maximum number of tokens allowed (8192).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000",
            "error_type": "validation",
        },
    ),
    (400, message("This model's maximum prompt length is 131072 but the request contains 538000 tokens.")),
    (400, {"object": "error", "message": "max_tokens must be at least 1, got -809.", "code": 400}),
    (
        400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length"},
    ),
    (400, message("The input (9001 tokens) is longer than the model's context length (8192 tokens).")),
    (400, message("Invalid request: Your request exceeded model token limit: 8192")),
    (400, message("Range of input length should be [1, 30720]")),
    (
        400,
        message(
            "prompt token count of 140000 exceeds the limit of 128000", "model_max_prompt_tokens_exceeded"
        ),
    ),
    (400, {"detail": "Input is too long for requested model."}),
    (503, b"upstream said: Please reduce the length of the messages or completion."),
]


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
def test_every_dialect_of_overflow(status: int, body: Any) -> None:
    assert kind_of(status, body) is ModelErrorKind.OVERFLOW
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert kind_of(status, raw) is ModelErrorKind.OVERFLOW


OTHERS: list[tuple[int, Any, ModelErrorKind]] = [
    # A 429 about tokens per minute is no overflow, whatever else it says; nor is Groq's 413.
    (429, message("Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 12000. The input must be reduced.", "rate_limit_exceeded", "tokens"), ModelErrorKind.RATE_LIMIT),
    (413, message("Request too large for model on tokens per minute (TPM): Limit 6000", "rate_limit_exceeded", "tokens"), ModelErrorKind.RATE_LIMIT),
    (400, {"message": "Too many tokens, please wait before trying again. Too many requests"}, ModelErrorKind.RATE_LIMIT),
    # A 400 about a too-long id is not one either.
    (400, message("Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 64 instead.", "string_above_max_length"), ModelErrorKind.BAD_REQUEST),
    (400, message("max_tokens is too large: 9000. This model supports at most 4096 completion tokens."), ModelErrorKind.CAPABILITY),
    (429, message("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"), ModelErrorKind.QUOTA),
    (402, message("Insufficient credits"), ModelErrorKind.QUOTA),
    (403, message("Your credit balance is too low to access the API."), ModelErrorKind.QUOTA),
    (429, [{"error": {"code": 429, "message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "17s"}]}}], ModelErrorKind.RATE_LIMIT),
    (429, b"", ModelErrorKind.RATE_LIMIT),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelErrorKind.TRANSIENT),
    (500, b"Internal Server Error", ModelErrorKind.TRANSIENT),
    (503, message("The server is overloaded"), ModelErrorKind.TRANSIENT),
    (408, b"", ModelErrorKind.TRANSIENT),
    (401, message("Incorrect API key provided", "invalid_api_key"), ModelErrorKind.AUTHENTICATION),
    (403, {"error": "forbidden"}, ModelErrorKind.AUTHENTICATION),
    (404, message("The model `x` does not exist", "model_not_found"), ModelErrorKind.BAD_REQUEST),
    (400, message("messages: roles must alternate"), ModelErrorKind.CAPABILITY),
    (307, b"", ModelErrorKind.BAD_REQUEST),
    (200, {"error": {"code": 429, "message": "Provider returned error"}}, ModelErrorKind.RATE_LIMIT),
    (200, {"error": {"code": "502", "message": "Provider returned error"}}, ModelErrorKind.TRANSIENT),
    (200, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelErrorKind.TRANSIENT),
    (200, {"error": {"type": "invalid_request_error", "message": "no"}}, ModelErrorKind.BAD_REQUEST),
    (200, {"error": "something"}, ModelErrorKind.TRANSIENT),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind"), OTHERS)
def test_what_is_no_overflow(status: int, body: Any, kind: ModelErrorKind) -> None:
    assert kind_of(status, body) is kind


@pytest.mark.parametrize(
    ("status", "text", "capability"),
    [
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            "images",
        ),
        (404, "No endpoints found that support image input", "images"),
        (400, "This model does not support images", "images"),
        (
            400,
            "Invalid content type. image_url is only supported by certain models: vision is not available",
            "images",
        ),
        (400, "registry.ollama.ai/library/gemma:latest does not support tools", "tools"),
        (500, "tools param requires --jinja flag", "tools"),
        (400, "The `reasoning_content` in the thinking mode must be passed back to the API.", "reasoning"),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model.", "parameter"),
        (400, "Unrecognized request argument supplied: stream_options", "parameter"),
    ],
)
def test_what_a_model_cannot_take_is_named(status: int, text: str, capability: str) -> None:
    """So that it is left out once, and remembered."""
    error = endpoint_error("host", status, message(text), {})
    assert (error.kind, error.capability) == (ModelErrorKind.CAPABILITY, capability)


def test_an_extra_field_is_named_where_it_stands() -> None:
    body = {
        "detail": [
            {
                "type": "extra_forbidden",
                "loc": ["body", "stream_options"],
                "msg": "Extra inputs are not permitted",
            }
        ]
    }
    error = endpoint_error("host", 422, body, {})
    assert error.capability == "parameter"
    assert "stream_options" in str(error)


NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:42 GMT"}, "", 42),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, "", 0),
        ({"retry-after": "-5"}, "", 0),
        ({"retry-after": "9" * 30}, "", MAX_RETRY_AFTER),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({}, "Please try again in 1m12.5s. Visit …", 72.5),
        ({}, "try again in 350ms", 0.35),
        ({}, "no idea", None),
    ],
)
def test_retry_after(headers: dict[str, str], text: str, seconds: float | None) -> None:
    """Seconds, a date, or what the words say."""
    assert retry_after(headers, text, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_the_message_is_one_harmless_line() -> None:
    error = endpoint_error("host:1", 500, message("a\r\nb\x1b]52;c;x\x07\u202e" + "z" * 5000), {})
    text = str(error)
    assert text.startswith("host:1: HTTP 500: a b ]52;c;x z")
    assert len(text) < MAX_DETAIL + 40
    assert text.isprintable()
    assert error.hint


def test_the_key_is_masked_where_an_endpoint_echoes_it() -> None:
    key = "sk-secret-0123456789"
    padding = "x" * (MAX_DETAIL - 10)  # so that the cut falls into the key
    error = endpoint_error("host", 401, message(f"{padding}{key}"), {}, lambda text: text.replace(key, "***"))
    assert "sk-secret" not in str(error)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["error", "code", "message", "type", "choices", "detail"]), inner, max_size=4
            )
        ),
        max_leaves=15,
    ),
    st.integers(100, 599),
)
def test_any_json_at_all_is_classified(body: Any, status: int) -> None:
    is_error(body)
    error = endpoint_error("host", status, body, {})
    assert not [letter for letter in str(error) if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")]
    assert error.kind in ModelErrorKind


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert "\n" not in one_line(text)
    assert len(one_line(text)) <= MAX_DETAIL
