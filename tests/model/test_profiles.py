"""What is known of a model, and where it is: settings before what was learned before the table."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.errors import ConfigurationError
from jobs.model_settings import EndpointSettings
from jobs.settings import Settings
from worker.model.classify import endpoint_error
from worker.model.opening import open_model
from worker.model.overflow_numbers import numbers_in
from worker.model.probing import window_in_models, window_in_props, window_in_show
from worker.model.profiles import BUILT_IN, Profile, profile_of
from worker.model.routes import route_of

ENDPOINTS = {
    "near": {"base_url": "http://127.0.0.1:9/v1", "limits": {"concurrency": 2}},
    "far": {"base_url": "https://user@far.example/v1", "api_key_env": "FAR_KEY"},
}


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"openai_base_url": "http://127.0.0.1:1/v1", **given})


def profile(model: str, facts: dict[str, Any] | None = None, **given: Any) -> Profile:
    made = settings(**given)
    return profile_of(made, route_of(made, model), facts or {})


def test_settings_come_before_what_was_learned_before_the_table() -> None:
    models = {"gpt-4o": {"window": 50_000}}
    learned = {"window": 60_000}
    assert (profile("gpt-4o").window, profile("gpt-4o").window_source) == (128_000, "built in")
    assert (profile("gpt-4o", learned).window, profile("gpt-4o", learned).window_source) == (
        60_000,
        "learned",
    )
    assert profile("gpt-4o", learned, models=models).window == 50_000
    assert profile("gpt-4o", learned, models=models, context_window=1_000).window == 1_000
    assert profile("whatever").window is None


def test_a_longest_reply_that_was_learned_bounds_the_one_that_is_wanted() -> None:
    assert profile("m", max_output_tokens=9_000).max_output == 9_000
    assert profile("m", {"max_output": 4_096}, max_output_tokens=9_000).max_output == 4_096
    assert profile("m", models={"*": {"max_output_tokens": 100}}).max_output == 100


@pytest.mark.parametrize(
    ("model", "endpoint", "wire_name"),
    [
        ("qwen", None, "qwen"),
        ("near/qwen", "near", "qwen"),
        ("vendor/qwen", None, "vendor/qwen"),
        ("small", "far", "qwen-small-v2"),
        ("scripted:/near/x.yaml", None, "scripted:/near/x.yaml"),
    ],
)
def test_where_a_model_is(model: str, endpoint: str | None, wire_name: str) -> None:
    made = settings(endpoints=ENDPOINTS, models={"small": {"endpoint": "far", "name": "qwen-small-v2"}})
    route = route_of(made, model)
    assert (route.endpoint, route.wire_name) == (endpoint, wire_name)
    assert "user@" not in route.key


def test_an_unknown_endpoint_is_named() -> None:
    with pytest.raises(ValidationError, match="did you mean 'near'"):
        settings(endpoints=ENDPOINTS, models={"m": {"endpoint": "neer"}})


def test_a_key_is_read_from_its_variable_and_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(endpoints=ENDPOINTS)
    monkeypatch.delenv("FAR_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="FAR_KEY is not set"):
        open_model(made, "far/m")
    monkeypatch.setenv("FAR_KEY", "sk-far-0123")
    assert "sk-far-0123" in made.secrets()
    assert "sk-far-0123" not in repr(made) + repr(open_model(made, "far/m"))


def test_headers_from_variables_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = EndpointSettings(
        base_url="https://h.example/v1", headers={"X-Token": "env:TOKEN_X", "X-Title": "jobs"}
    )
    monkeypatch.setenv("TOKEN_X", "hush-hush")
    assert endpoint.sent_headers() == {"X-Token": "hush-hush", "X-Title": "jobs"}
    assert endpoint.secrets() == ["hush-hush"]


def test_a_password_in_an_address_is_refused() -> None:
    with pytest.raises(ValidationError, match="must not stand in the file"):
        EndpointSettings(base_url="https://u:p@h.example/v1")


def test_parameters_that_are_ours_are_refused() -> None:
    with pytest.raises(ValidationError, match="set by Sostenuto itself"):
        settings(models={"m": {"parameters": {"stream": False}}})


def test_the_table_holds_no_line_that_another_hides() -> None:
    names = [glob for glob, _ in BUILT_IN]
    for position, name in enumerate(names):
        probe = name.replace("*", "x")
        first = next(line for line in BUILT_IN if _fits(line[0], probe))
        assert names.index(first[0]) == position, f"{name} is hidden by {first[0]}"


def _fits(glob: str, name: str) -> bool:
    return name == glob or (glob.endswith("*") and name.startswith(glob[:-1]))


@pytest.mark.parametrize(
    ("text", "window", "prompt"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9001 tokens (8001 in the messages, 1000 in the completion).", 8192, 8001),
        ("This model's maximum context length is 128,000 tokens. However, your messages resulted in 130001 tokens.", 128_000, 130_001),
        ("9001 tokens will not fit in 8192", 8192, 9001),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576, 1_200_000),
        ("the request exceeds the available context size: request (5000 tokens), n_ctx = 4096", 4096, 5000),
        ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 131_072, 140_000),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens", 4096, None),
        ("Range of input length should be [1, 30720]", 30_720, None),
        ("Your request exceeded model token limit: 131072", 131_072, None),
        ("the context length is too small for this", None, None),
        ("maximum context length is 7 tokens", None, None),
    ],
)  # fmt: skip
def test_an_overflow_names_the_window(text: str, window: int | None, prompt: int | None) -> None:
    numbers = numbers_in(text)
    assert (numbers.window, numbers.prompt) == (window, prompt)


def test_members_of_an_error_name_it_too() -> None:
    body = {
        "error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}
    }
    numbers = endpoint_error("host", 400, body, {}).numbers
    assert (numbers.window, numbers.prompt) == (4096, 5000)


@pytest.mark.parametrize(
    ("found", "window"),
    [
        (window_in_models({"data": [{"id": "m", "max_model_len": 32768}]}, "m"), 32768),  # vLLM
        (window_in_models({"data": [{"id": "x"}, {"id": "m", "context_length": 65536}]}, "m"), 65536),
        (window_in_models({"data": [{"id": "m", "context_window": 131072}]}, "m"), 131072),
        (window_in_models({"data": [{"id": "file.gguf", "meta": {"n_ctx_train": 8192}}]}, "m"), None),
        (window_in_models({"data": [{"id": "file.gguf", "meta": {"n_ctx": 4096}}]}, "m"), 4096),
        (window_in_models({"data": [{"id": "a", "max_model_len": 1}, {"id": "b"}]}, "m"), None),
        (window_in_models({"data": [{"id": "m", "max_model_len": True}]}, "m"), None),
        (window_in_models(["junk"], "m"), None),
        (window_in_props({"default_generation_settings": {"n_ctx": 4096}}), 4096),  # llama.cpp
        (window_in_props({"default_generation_settings": None}), None),
        (window_in_show({"parameters": "stop x\nnum_ctx    16384"}), 16384),  # Ollama
        (window_in_show({"model_info": {"llama.context_length": 131072}}), None),
        (window_in_show(None), None),
    ],
)
def test_what_servers_tell_of_their_window(found: int | None, window: int | None) -> None:
    assert found == window
