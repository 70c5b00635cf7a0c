"""What can go wrong with a model call, as kinds the agent loop acts on.

    SostenutoError
    └── ModelError(kind)        one line for the user: where, status, the endpoint's own words

A cancelled call is no error: it raises `worker.cancel.Cancelled`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from storage.errors import SostenutoError

RATE_LIMIT_WAIT = 20.0  # seconds, where an endpoint does not say how long
MAX_DETAIL = 300  # characters of the endpoint's own text in an error message


class ModelErrorKind(StrEnum):
    """What to do about a failed call is decided by its kind alone."""

    TRANSIENT = "transient"  # unreachable, overloaded, broken: the same request may work later
    RATE_LIMIT = "rate_limit"  # too many requests or tokens a minute: wait, `retry_after` if given
    QUOTA = "quota"  # the account is used up: retrying cannot help
    OVERFLOW = "overflow"  # the request does not fit the model's window: compact, then once more
    BAD_REQUEST = "bad_request"  # refused as it stands, and it would be again
    AUTHENTICATION = "authentication"  # the key is missing, wrong, or may not use this model
    CAPABILITY = "capability"  # the model cannot take what was sent: see `capability`
    INTERRUPTED = "interrupted"  # the answer began and did not end: nothing of it is kept


_HINTS = {
    ModelErrorKind.TRANSIENT: "the call is repeated later; if it goes on, check OPENAI_BASE_URL",
    ModelErrorKind.RATE_LIMIT: "the job waits and goes on by itself; fewer workers make it rarer",
    ModelErrorKind.QUOTA: "add credit to the account or change OPENAI_API_KEY, then retry the job",
    ModelErrorKind.OVERFLOW: "the context is compacted and the call repeated, once",
    ModelErrorKind.BAD_REQUEST: "check SOSTENUTO_MODEL and OPENAI_BASE_URL",
    ModelErrorKind.AUTHENTICATION: "check OPENAI_API_KEY, and that it may use this model",
    ModelErrorKind.CAPABILITY: "choose a model that supports it",
    ModelErrorKind.INTERRUPTED: "the call is repeated; if it goes on, check proxies and timeouts on the way",
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Tokens that an endpoint named in its refusal; None where it did not."""

    window: int | None = None
    prompt: int | None = None
    max_output: int | None = None


class ModelError(SostenutoError):
    """A model call failed; nothing of a partial answer is kept.

    `retry_after` is in seconds from now, None where the endpoint did not say. `status` is the HTTP status, or
    the code found in an error that came with status 200. `capability` names what a CAPABILITY error is about:
    "images", "tools", "reasoning", "system", "user_after_tool", "parallel_calls", "ids", "null_content", "streaming",
    "max_output" or "parameter". `numbers` are the tokens that the endpoint's words tell. `own_limit`: a limit of the
    operator's settings was reached, nothing was asked. `endpoint` is what the cooldown of the model that failed is
    shared by, where a worker process asked it. `epochs` counts how often the call shaped its messages anew.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        capability: str | None = None,
        hint: str | None = None,
        numbers: Numbers | None = None,
        own_limit: bool = False,
        endpoint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint or _HINTS[kind])
        self.kind = kind
        self.retry_after = retry_after
        self.status = status
        self.capability = capability
        self.numbers = numbers or Numbers()
        self.own_limit = own_limit
        self.endpoint = endpoint
        self.epochs = 0

    @property
    def limit_wait(self) -> float:
        """Seconds until a rate limit is over, as far as is known."""
        return RATE_LIMIT_WAIT if self.retry_after is None else self.retry_after


# What a terminal would act on: C0, DEL, C1, line separators, direction overrides; and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def one_line(text: str, limit: int = MAX_DETAIL) -> str:
    """Foreign text fit for an error message: one line, no controls, at most `limit` characters."""
    flat = " ".join(_UNSAFE.sub(" ", text[: limit * 8]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
