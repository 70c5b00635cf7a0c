"""Endpoints with ways of their own: where they are asked, with which headers, and what their calls want back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.settings import Settings
from storage.engine import Database
from tests.model.calling import DONE, TOOL, call_delta, delta, event
from tests.strict_endpoint import Answer, ChatRequest, Raw, Reply, StrictEndpoint
from worker.cancel import CancelToken
from worker.model.calls import ModelCalls
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.rules import SIGNATURE, Rules, short_id, to_wire
from worker.model.types import ModelRequest

HEAD: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def calls_at(endpoint: StrictEndpoint, url: str, folder: Path, **settings: Any) -> ModelCalls:
    settings = {"openai_base_url": endpoint.url, "data_dir": folder, "database_url": url, **settings}
    return ModelCalls(Settings.model_validate(settings), Database(url))


def request(model: str, messages: list[dict[str, Any]] | None = None) -> ModelRequest:
    return ModelRequest(model, messages or HEAD, [TOOL], 100, "job/1/1")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (
            {"api_version": "2024-10-21"},
            "/v1/openai/deployments/my%2Fdep/chat/completions?api-version=2024-10-21",
        ),
        ({}, "/v1/chat/completions"),
    ],
)
def test_azure(
    migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], path: str
) -> None:
    """The deployment in the path, the key in its own header and in no other, further headers as configured."""
    monkeypatch.setenv("AZURE_KEY", "az-0123456789")
    monkeypatch.setenv("GATEWAY", "gate-secret")
    with StrictEndpoint(lambda _: Reply("fine")) as endpoint:
        configured = {
            "base_url": endpoint.url,
            "dialect": "azure",
            "api_key_env": "AZURE_KEY",
            "headers": {"X-Gate": "env:GATEWAY", "X-Team": "jobs"},
            **more,
        }
        calls = calls_at(endpoint, migrated_url, tmp_path, endpoints={"az": configured})
        assert calls.complete(request("az/my/dep"), CancelToken()).content == "fine"
        assert endpoint.paths == [path]
        headers = endpoint.requests[0].headers
        assert headers["api-key"] == "az-0123456789"
        assert "authorization" not in headers
        assert (headers["x-gate"], headers["x-team"]) == ("gate-secret", "jobs")
        assert endpoint.requests[0].body["model"] == "my/dep"
        endpoint.assert_clean()


def test_parameters_of_the_settings_are_sent(migrated_url: str, tmp_path: Path) -> None:
    with StrictEndpoint(lambda _: Reply("fine")) as endpoint:
        models = {"m*": {"parameters": {"temperature": 0.2, "reasoning_effort": "low"}}}
        calls = calls_at(endpoint, migrated_url, tmp_path, models=models)
        calls.complete(request("m1"), CancelToken())
        calls.complete(request("other"), CancelToken())
        first, second = (seen.body for seen in endpoint.requests)
        assert (first["temperature"], first["reasoning_effort"]) == (0.2, "low")
        assert "temperature" not in second


def test_a_call_s_signature_goes_back_to_the_model_that_gave_it() -> None:
    """Gemini refuses a conversation whose calls lost their thought signatures; others refuse the unknown member."""
    call = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    signed = {**call, SIGNATURE: {"by": "gemini-3-pro", "value": {"google": {"thought_signature": "x"}}}}
    talk: list[dict[str, Any]] = [*HEAD, {"role": "assistant", "content": None, "tool_calls": [signed]}]
    with_signatures = Rules(signatures=True)
    [sent] = to_wire(talk, with_signatures, "gemini-3-pro")[2]["tool_calls"]
    assert sent == {**call, "extra_content": {"google": {"thought_signature": "x"}}}
    assert to_wire(talk, with_signatures, "other")[2]["tool_calls"] == [call]
    assert to_wire(talk, Rules(), "gemini-3-pro")[2]["tool_calls"] == [call]
    assert talk[2]["tool_calls"] == [signed]  # what was given stays as it was


def test_a_signature_is_read_from_the_stream(migrated_url: str, tmp_path: Path) -> None:
    signature = {"google": {"thought_signature": "abc"}}
    function = {"name": "Read", "arguments": "{}"}
    piece = call_delta({"index": 0, "id": "x", "function": function, "extra_content": signature})
    with StrictEndpoint(lambda _: Raw((piece, delta(finish="stop"), DONE))) as endpoint:
        reply = calls_at(endpoint, migrated_url, tmp_path).complete(request("m"), CancelToken())
        assert reply.tool_calls[0].extra == signature


def test_short_ids_are_what_mistral_takes() -> None:
    ids = {short_id(f"call_{number}") for number in range(2_000)}
    assert len(ids) == 2_000
    assert all(len(identifier) == 9 and identifier.isalnum() and identifier.isascii() for identifier in ids)
    assert short_id("call_1") == short_id("call_1")


def test_a_router_s_comments_and_its_error_in_mid_stream(migrated_url: str, tmp_path: Path) -> None:
    """OpenRouter: comments while it waits, and a provider's failure after the reply began, with status 200."""
    failure = {"error": {"code": 429, "message": "Provider rate limited"}, "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}  # fmt: skip

    def mind(seen: ChatRequest) -> Answer:
        comment = b": OPENROUTER PROCESSING\n\n"
        begun = (comment, comment, delta(content="Let me "))
        good = (delta(content="see"), delta(finish="stop"), DONE)
        return Raw((*begun, event(failure))) if seen.label == "bad/1/1" else Raw((*begun, *good))

    with StrictEndpoint(mind) as endpoint:
        calls = calls_at(endpoint, migrated_url, tmp_path)
        assert calls.complete(request("m"), CancelToken()).content == "Let me see"
        bad = ModelRequest("m", HEAD, [TOOL], None, "bad/1/1")
        with pytest.raises(ModelError) as caught:
            calls.complete(bad, CancelToken())
        assert caught.value.kind is ModelErrorKind.RATE_LIMIT


def test_one_call_a_message_where_more_are_refused() -> None:
    """Each call with its result after it; the text stays with the first."""
    pair = [
        {"id": name, "type": "function", "function": {"name": "Read", "arguments": "{}"}} for name in "ab"
    ]
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in "ab"]
    talk: list[dict[str, Any]] = [
        *HEAD,
        {"role": "assistant", "content": "Both.", "tool_calls": pair},
        *results,
    ]
    sent = to_wire(talk, Rules(parallel_calls=False), "m")
    assert [message["role"] for message in sent[2:]] == ["assistant", "tool", "assistant", "tool"]
    assert [message.get("content") for message in sent[2:]] == ["Both.", "a", "", "b"]
    assert all(len(message["tool_calls"]) == 1 for message in sent[2::2])
