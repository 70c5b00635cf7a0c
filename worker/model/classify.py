"""From an endpoint's answer to a ModelError: pure functions over status, headers and body.

Servers agree on little. The same overflow is a code here, a sentence there, a 413, a 500, or an error inside a stream
that began with status 200; so the dialects are tables, tried in the order of `_kind`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from worker.model.errors import ModelError, ModelErrorKind, one_line
from worker.model.overflow_numbers import numbers_in

MAX_RETRY_AFTER = 86_400.0  # a day: later than that, asking again costs less than a mistaken header
_MAX_BODY = 20_000  # characters of an error body that are looked at

_QUOTA_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "insufficient_balance",
}
_QUOTA_TEXT = re.compile(
    r"exceeded your current quota|credit balance is too low|insufficient (?:balance|credit|fund|quota)"
    r"|requires more credits|out of credits|billing (?:hard )?limit",
    re.IGNORECASE,
)
_RATE_CODES = {
    "rate_limit_exceeded",
    "rate_limit_error",
    "rate_limited",
    "too_many_requests",
    "resource_exhausted",
}
_RATE_TEXT = re.compile(
    r"(?:tokens|requests)[ _-]per[ _-](?:min|sec|hour|day)|rate[ _-]?limit|too many requests", re.IGNORECASE
)

_OVERFLOW_CODES = {
    "context_length_exceeded",  # OpenAI, DeepSeek, llama-cpp-python
    "exceed_context_size_error",  # llama.cpp
    "context_window_exceeded",
    "contextwindowexceedederror",  # LiteLLM
    "model_max_prompt_tokens_exceeded",  # GitHub
    "request_too_large",  # Anthropic, 413
    "prompt_too_long",
    "input_too_long",
}
_OVERFLOW_TEXT = re.compile(
    r"maximum context length"  # OpenAI, vLLM, Mistral, OpenRouter
    r"|max(?:imum)?[ _]model[ _]len"  # vLLM
    r"|(?:prompt|input|request|conversation) is too long"  # Anthropic, Bedrock
    r"|(?:exceed|overflow)\w*\b[^.]{0,60}\bcontext[ _](?:length|size|window|limit)"  # llama.cpp, llama-cpp-python
    r"|context[ _](?:length|size|window|limit)[^.]{0,30}(?:exceed|overflow)"  # MiniMax and others
    r"|(?:greater|longer|larger) than the (?:model's |maximum )?context"  # LM Studio, SGLang
    r"|\d+ tokens (?:will|do|does) not fit"
    r"|input token count[^.]{0,60}exceeds"  # Gemini
    r"|maximum prompt length is \d+"  # xAI
    r"|prompt (?:token count|length)[^.]{0,60}exceeds|prompt exceeds max length"  # GitHub, GLM
    r"|exceeded model token limit"  # Moonshot
    r"|inputs?`? tokens \+ `?max_new_tokens"  # TGI
    r"|range of input length should be"  # DashScope
    r"|max_tokens must be at least 1, got -"  # vLLM: what the prompt leaves
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)",
    re.IGNORECASE,
)

_CAPABILITIES = (  # what the text of a refused request says about what the model cannot do
    (
        "images",
        r"(?:image|vision|multimodal|mmproj)[^.]{0,80}(?:not support|unsupported|not available|cannot)",
    ),
    ("images", r"(?:not support|unsupported|no endpoints)[^.]{0,60}(?:image|vision|multimodal)"),
    ("images", r"unknown variant `image_url`|content must be a string"),
    ("tools", r"(?:not support|unsupported|no endpoints)[^.]{0,40}(?:tool|function call)"),
    ("tools", r"(?:tools?|function calling)\b[^.]{0,40}(?:not support|unsupported)|requires --jinja"),
    ("tools", r"tool choice requires --enable-auto-tool-choice"),
    (
        "reasoning",
        r"reasoning(?:_content|_details)?\b[^.]{0,80}(?:not support|unsupported|not permitted|extra|must)",
    ),
    ("reasoning", r"(?:missing|must|expected|unknown|unrecognized)[^.]{0,60}\b(?:reasoning|thinking)"),
    ("user_after_tool", r"unexpected role 'user' after role 'tool'|roles must alternate"),
    ("user_after_tool", r"user (?:message|role|turn)[^.]{0,30}(?:follow|after)[^.]{0,30}\btool"),
    ("system", r"system (?:role|message|prompt)s?[^.]{0,40}not (?:be )?(?:support|allow|enabled)"),
    (
        "system",
        r"developer instruction is not enabled|(?:unsupported|unknown|invalid)[^.]{0,20}role[^.]{0,10}system",
    ),
    ("parallel_calls", r"single tool[- ]calls? at once|(?:only )?one tool call (?:per|at a)"),
    ("ids", r"tool[ _]call[ _]id[^.]{0,80}(?:length of 9|a-z, A-Z, 0-9)"),
    (
        "null_content",
        r"\bcontent\b[^.]{0,60}(?:none is not an allowed|(?:be|is|got|value) null|valid string)",
    ),
    ("null_content", r"null[^.]{0,30}\bcontent\b|expected a string, got null"),
    ("streaming", r"\bstream(?:ing)?\b[^.]{0,40}(?:not (?:be )?support|unsupported)|verified to stream"),
    ("streaming", r"(?:not support|unsupported)[^.]{0,30}\bstream(?:ing)?\b"),
    ("max_output", r"max(?:_completion|_output)?_tokens\W[^.]{0,40}(?:too large|exceed|less than or equal)"),
    ("max_output", r"at most \d+ (?:completion|output) tokens"),
    (
        "parameter",
        r"unsupported[ _](?:parameter|value)|(?:unknown|unrecognized|extra)[^.]{0,30}(?:parameter|argument|input|field)",
    ),
)
_CAPABILITY_TEXT = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CAPABILITIES)

_AUTHENTICATION_CODES = {"invalid_api_key", "authentication_error", "permission_error", "permission_denied"}
_TRANSIENT_CODES = {
    "overloaded_error",
    "server_error",
    "internal_error",
    "internal_server_error",
    "api_error",
}
_REFUSED_CODES = {
    "invalid_request_error",
    "badrequesterror",
    "invalid_argument",
    "model_not_found",
    "not_found_error",
}

_TRY_AGAIN = re.compile(r"(?:try again in|retry in)\s*((?:[\d.]+\s*(?:ms|[hms])\s*)+)", re.IGNORECASE)
_DURATION = re.compile(r"([\d.]+)\s*(ms|[hms])")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class _Complaint:
    """What an error body says: its codes and types in lower case, the status it names, and its words."""

    codes: frozenset[str]
    status: int | None
    text: str


def endpoint_error(
    origin: str,
    status: int,
    body: bytes | str | object,
    headers: Mapping[str, str],
    mask: Callable[[str], str] = str,
    *,
    now: datetime | None = None,
) -> ModelError:
    """The error that an HTTP answer amounts to. `status` 200 is for an error that came as a normal answer.

    `headers` must look names up without regard to case, as an HTTP client's do (or have them in lower case). Endpoints
    that echo the key have it masked by `mask`. `now` is what a Retry-After date is compared with.
    """
    complaint = _read(body)
    words = one_line(mask(complaint.text))
    effective = complaint.status or status if 200 <= status < 300 else status
    wait = retry_after(headers, complaint.text, now)
    kind, capability = _kind(effective, complaint, wait)
    shown = f"HTTP {effective}" if effective >= 300 else "an error inside HTTP 200"
    message = f"{origin}: {shown}: {words or 'no message'}"
    numbers = numbers_in(complaint.text, body)
    return ModelError(
        kind, message, retry_after=wait, status=effective, capability=capability, numbers=numbers
    )


def _kind(status: int, complaint: _Complaint, wait: float | None) -> tuple[ModelErrorKind, str | None]:
    codes, text = complaint.codes, complaint.text
    if codes & _QUOTA_CODES or status == 402:
        return ModelErrorKind.QUOTA, None
    # Gemini calls its per-minute limits a quota too, but says when they end.
    if wait is None and _QUOTA_TEXT.search(text):
        return ModelErrorKind.QUOTA, None
    if codes & _OVERFLOW_CODES and status != 429:
        return ModelErrorKind.OVERFLOW, None
    # "Request too large … tokens per minute" comes with 413 as well as 429, and no compaction helps against it.
    if status == 429 or codes & _RATE_CODES or _RATE_TEXT.search(text):
        return ModelErrorKind.RATE_LIMIT, None
    if status in (401, 403) or codes & _AUTHENTICATION_CODES:
        return ModelErrorKind.AUTHENTICATION, None
    if status == 413 or _OVERFLOW_TEXT.search(text):
        return ModelErrorKind.OVERFLOW, None
    for capability, pattern in _CAPABILITY_TEXT:
        if pattern.search(text):
            return ModelErrorKind.CAPABILITY, capability
    if status in (408, 409, 425) or status >= 500 or codes & _TRANSIENT_CODES:
        return ModelErrorKind.TRANSIENT, None
    if status >= 300 or codes & _REFUSED_CODES:
        return ModelErrorKind.BAD_REQUEST, None
    return ModelErrorKind.TRANSIENT, None  # an unknown error inside a 200


def retry_after(headers: Mapping[str, str], text: str = "", now: datetime | None = None) -> float | None:
    """Seconds to wait, from the headers (seconds, milliseconds, an HTTP date) or else the words; None if neither says."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    header = headers.get("retry-after")
    seconds = _number(header)
    if seconds is not None:
        return _bounded(seconds)
    if header:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        moment = now or datetime.now(UTC)
        return _bounded((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - moment.timestamp())
    said = _TRY_AGAIN.search(text)
    if said is None:
        return None
    parts = _DURATION.findall(said[1])
    return _bounded(sum((_number(amount) or 0.0) * _UNIT_SECONDS[unit.lower()] for amount, unit in parts))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _read(body: bytes | str | object) -> _Complaint:
    """Whatever an endpoint sends as an error: OpenAI's object, a bare one, a list, `detail`, plain text, HTML."""
    if isinstance(body, bytes):
        body = body[: _MAX_BODY * 4].decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return _Complaint(frozenset(), None, re.sub(r"<[^>]{0,500}>", " ", str(body)[:_MAX_BODY]))
    codes: set[str] = set()
    statuses: list[int] = []
    words: list[str] = []
    for key, value in _leaves(body, depth=0):
        if key in {"code", "type", "status", "error_type", "error"}:
            number = _status(value)
            if number is not None:
                statuses.append(number)
            elif isinstance(value, str) and len(value) <= 64:
                codes.add(value.lower())
        if isinstance(value, str) and key not in {"type", "object", "param"} and value not in words:
            words.append(f"retry in {value}" if key == "retryDelay" else value)
    return _Complaint(frozenset(codes), statuses[0] if statuses else None, ": ".join(words)[:_MAX_BODY])


def _leaves(value: object, depth: int, key: str = "") -> Iterator[tuple[str, object]]:
    """Every scalar with the key it stands under, messages first, so that they lead the text shown."""
    if depth > 6:
        return
    if isinstance(value, dict):
        for name in sorted(value, key=lambda name: name not in {"error", "message"}):
            yield from _leaves(value[name], depth + 1, str(name))
    elif isinstance(value, list):
        for item in value[:5]:
            yield from _leaves(item, depth + 1, key)
    else:
        yield key, value


def _status(value: object) -> int | None:
    """An HTTP status given as a number or as digits; other numbers are a vendor's own codes."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    digits = str(value)
    return (
        int(digits)
        if len(digits) == 3 and digits.isdecimal() and digits.isascii() and digits[0] in "345"
        else None
    )


def is_error(answer: object) -> bool:
    """Does a JSON answer that should hold choices hold an error instead (`error`, `object: error`, `detail`)?"""
    if isinstance(answer, list):
        return bool(answer) and all(is_error(item) for item in answer)
    if not isinstance(answer, dict):
        return False
    if answer.get("error") or answer.get("object") == "error" or answer.get("type") == "error":
        return True
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and choices[0].get("error"):
        return True
    return not choices and any(answer.get(key) for key in ("code", "detail", "message", "errors"))
