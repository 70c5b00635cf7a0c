"""The tokens that an endpoint names when it refuses a request: its window above all, which is nowhere else to be had."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.model.errors import Numbers

LEAST, MOST = 256, 100_000_000  # beyond them a number is no window

_N = r"(\d[\d,_]*)"
_WINDOW = (
    rf"maximum context length (?:is|of)\W*{_N}",  # OpenAI, vLLM, Mistral, OpenRouter
    rf"\bn_ctx\W{{1,4}}{_N}",  # llama.cpp
    rf"max(?:imum)?[ _]model[ _]len(?:gth)?\W{{1,6}}(?:is |of )?{_N}",  # vLLM
    rf"context (?:window|length|size|limit)[^.\d]{{0,40}}{_N}",
    rf"(?:will|do|does) not fit in\W*{_N}",
    rf"tokens > {_N}",  # Anthropic
    rf"maximum number of tokens allowed\W*{_N}",  # Gemini
    rf"maximum prompt length is {_N}",  # xAI
    rf"max_new_tokens`? must be <= {_N}",  # TGI
    rf"range of input length should be \[\d+, ?{_N}\]",  # DashScope
    rf"exceeded model token limit\W*{_N}",  # Moonshot
)
_PROMPT = (
    rf"\bn_prompt_tokens\W{{1,4}}{_N}",
    rf"{_N} in the messages",
    rf"(?:resulted in|contains|request has|prompt has|you requested)(?: about| at least)? {_N} (?:input )?tokens",
    rf"{_N} tokens (?:will|do|does) not fit",
    rf"too long\W*{_N} tokens >",
    rf"request \({_N} tokens\)",
    rf"input token count \({_N}\)",
)
_OUTPUT = (
    rf"at most {_N} (?:completion|output) tokens",
    rf"max(?:_completion|_output)?_tokens\W[^.\d]{{0,60}}(?:<=|less than or equal to|at most|maximum of)\W*{_N}",
)
_PATTERNS = {
    name: [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    for name, patterns in (("window", _WINDOW), ("prompt", _PROMPT), ("max_output", _OUTPUT))
}


def numbers_in(text: str, body: object = None) -> Numbers:
    """What the words tell, or members such as `n_ctx` beside them. Numbers that can be none are left out."""
    words = f"{text}\n{_members(body)}"
    return Numbers(
        window=_found(_PATTERNS["window"], words, LEAST),
        prompt=_found(_PATTERNS["prompt"], words, 1),
        max_output=_found(_PATTERNS["max_output"], words, 1),
    )


def _found(patterns: Iterable[re.Pattern[str]], words: str, least: int) -> int | None:
    for pattern in patterns:
        if (match := pattern.search(words)) is not None:
            number = int(re.sub(r"[^0-9]", "", match[1])[:12] or "0")
            return number if least <= number <= MOST else None
    return None


def _members(body: object) -> str:
    """Numbers that stand as members of the error, as text."""
    if isinstance(body, bytes):
        body = body[:20_000].decode("utf-8", "replace")
    if isinstance(body, str):
        return body[:20_000] if "n_ctx" in body else ""
    if isinstance(body, dict):
        error = body.get("error")
        inner = {**body, **(error if isinstance(error, dict) else {})}
        return " ".join(f"{name} {inner[name]}" for name in ("n_ctx", "n_prompt_tokens") if name in inner)
    return ""
