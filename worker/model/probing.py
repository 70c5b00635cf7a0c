"""Asking a server how large a model's window is, in the ways that servers tell it. Nothing is generated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2

from worker.cancel import CancelToken
from worker.model.errors import ModelError
from worker.model.loop import shared_loop
from worker.model.openai_client import Endpoint
from worker.model.overflow_numbers import LEAST, MOST

PROBE_SECONDS = 3.0  # for all questions together: a server that hangs holds a job's first call no longer
_MOST_BYTES = 8 * 1024 * 1024  # a router's list of models is long
# vLLM; OpenRouter, LiteLLM; Groq; Mistral, LM Studio
_FIELDS = ("max_model_len", "loaded_context_length", "context_length", "context_window", "max_context_length")


def probe_window(endpoint: Endpoint, model: str, cancel: CancelToken) -> int | None:
    """The window that the server names for `model`, None where it does not tell. Raises Cancelled, nothing else."""
    try:
        return shared_loop().run(lambda: _probe(endpoint, model), cancel)
    except ModelError:
        return None


async def _probe(endpoint: Endpoint, model: str) -> int | None:
    headers = {**endpoint.headers, "Accept-Encoding": "identity"}
    if endpoint.api_key:
        headers |= (
            {"api-key": endpoint.api_key}
            if endpoint.azure
            else {"Authorization": f"Bearer {endpoint.api_key}"}
        )
    base = endpoint.base_url.rstrip("/")
    root = urlunsplit(urlsplit(base)._replace(path=urlsplit(base).path.removesuffix("/v1"))).rstrip("/")
    try:
        async with (
            asyncio.timeout(PROBE_SECONDS),
            httpx2.AsyncClient(
                headers=headers, timeout=PROBE_SECONDS, follow_redirects=False, trust_env=True
            ) as client,
        ):
            return (
                window_in_models(await _json(client, "GET", f"{base}/models"), model)
                or window_in_props(await _json(client, "GET", f"{root}/props"))
                or window_in_show(await _json(client, "POST", f"{root}/api/show", {"model": model}))
            )
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError):
        return None


async def _json(client: httpx2.AsyncClient, method: str, url: str, body: object = None) -> Any:
    """The answer, None where there is none to be read."""
    async with client.stream(method, url, json=body) as response:
        if response.status_code != 200:
            return None
        read = bytearray()
        async for chunk in response.aiter_bytes():
            read += chunk
            if len(read) > _MOST_BYTES:
                return None
    try:
        return json.loads(read)
    except (ValueError, RecursionError):
        return None


def window_in_models(answer: Any, model: str) -> int | None:
    """From `/v1/models`: the entry of this name, or the only one."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    named = [entry for entry in found if entry.get("id") == model] or (found if len(found) == 1 else [])
    for entry in named:
        meta = entry.get("meta")
        # What a model was trained with (n_ctx_train) is not what its server was started with.
        places = [entry, {"max_model_len": meta.get("n_ctx")} if isinstance(meta, dict) else {}]
        if window := _first(place.get(field) for place in places for field in _FIELDS):
            return window
    return None


def window_in_props(answer: Any) -> int | None:
    """From llama.cpp's `/props`: what one of its slots has."""
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    return _first([settings.get("n_ctx")]) if isinstance(settings, dict) else None


def window_in_show(answer: Any) -> int | None:
    """From Ollama's `/api/show`: the `num_ctx` it loads the model with.

    Not the model's own context length: Ollama loads it with less, and cuts longer prompts without a word.
    """
    parameters = answer.get("parameters") if isinstance(answer, dict) else None
    if not isinstance(parameters, str):
        return None
    pairs = (line.split() for line in parameters.splitlines())
    return _first(pair[1] for pair in pairs if len(pair) == 2 and pair[0] == "num_ctx")


def _first(values: Iterable[object]) -> int | None:
    for given in values:
        digits = isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 12
        value = int(given) if digits and isinstance(given, str) else given
        if isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST:
            return value
    return None
