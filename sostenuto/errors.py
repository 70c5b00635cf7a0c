"""Every error of the client.

    SostenutoError
    ├── Misconfigured       no URL or no token, or one that cannot be used
    ├── ConnectionFailed    no answer, or one that was cut; `sent` False: the server has not seen the request
    ├── WaitTimeout         `wait` ran out of time (also a TimeoutError); `job` is how it stood
    ├── UnexpectedAnswer    it came from something other than Sostenuto, a proxy say
    ├── Unauthorized        401   the token is missing, unknown, expired or revoked
    ├── Forbidden           403   the token lacks a scope
    ├── NotFound            404   no such job, file or piece, or someone else's
    ├── Conflict            409   not possible in the job's state
    ├── TooLarge            413   of a request; or a file longer than `read` was allowed to fetch
    ├── Invalid             400, 415, 416, 421, 422   the request is wrong; `errors` names the places
    ├── Unavailable         429, 502, 503, 504        later perhaps; `retry_after` is in seconds
    └── ServerFailed        500, 507 and the like     the server's log tells more

Those with a status carry what the server said: `status`, `code` (stable, to compare with), `detail` (one line for
people) and `hint` (what to do; None where it does not know).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sostenuto.records import Job

LONGEST_SHOWN = 300


class SostenutoError(Exception):
    """Every error that this client raises itself; a local file's own error is an OSError as ever."""

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str | None = None,
        hint: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail if hint is None else f"{detail} ({hint})")
        self.detail = detail
        self.status = status
        self.code = code
        self.hint = hint
        self.errors = tuple(errors)
        self.retry_after = retry_after


class Misconfigured(SostenutoError):
    """The client cannot be made: no URL, no token, or one that cannot be used."""


class ConnectionFailed(SostenutoError):
    """There was no answer, or it was cut. `sent` False: the server has not seen the request; True: it may have."""

    def __init__(self, detail: str, *, sent: bool, hint: str | None = None) -> None:
        super().__init__(detail, hint=hint)
        self.sent = sent


class WaitTimeout(SostenutoError, TimeoutError):
    """The time given to `wait` is over. The job goes on; `job` is how it stood."""

    def __init__(self, job: Job, seconds: float) -> None:
        super().__init__(f"job {job.id} is {job.state} after {seconds:g} s", hint="it goes on: wait again")
        self.job = job


class UnexpectedAnswer(SostenutoError):
    """The answer is none that a Sostenuto server gives: check the URL, and what stands between."""


class Unauthorized(SostenutoError):
    """The token is missing, unknown, expired or revoked."""


class Forbidden(SostenutoError):
    """The token lacks a scope."""


class NotFound(SostenutoError):
    """There is no such job, file or page; someone else's looks the same."""


class Conflict(SostenutoError):
    """Not possible in the job's present state."""


class TooLarge(SostenutoError):
    """What was sent, or was to be fetched into memory, is larger than allowed."""


class Invalid(SostenutoError):
    """The request is wrong, and stays wrong when repeated."""


class Unavailable(SostenutoError):
    """The server, or what it needs, is away or busy. What is safe to repeat was repeated before this was raised."""


class ServerFailed(SostenutoError):
    """The server failed; its log tells more."""


_BY_STATUS: dict[int, type[SostenutoError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> SostenutoError:
    """The error that an answer is; what is not a problem document is shown in one short line."""
    fallback = ServerFailed if status >= 500 else Invalid if status >= 400 else UnexpectedAnswer
    kind = _BY_STATUS.get(status, fallback)
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        shown = " ".join(content[:LONGEST_SHOWN].decode(errors="replace").split())
        document = {"detail": f"HTTP {status}" + (f": {shown}" if shown else "")}
    return kind(
        str(document.get("detail") or f"HTTP {status}"),
        status=status,
        code=document.get("code"),
        hint=document.get("hint"),
        errors=[entry for entry in document.get("errors") or () if isinstance(entry, dict)],
        retry_after=_seconds(headers.get("retry-after")),
    )


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header, which is seconds or a date; None where it is neither."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
