"""Errors as `application/problem+json` (RFC 9457), without secrets and without what the client sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from jobs.errors import (
    BrokerUnavailable,
    DiskFull,
    FileInTheWay,
    IllegalTransition,
    JobNotFound,
    NotFound,
    SostenutoError,
    StorageError,
    TooManyQueued,
    UnknownPiece,
    UsageError,
)
from jobs.settings import Settings
from storage.masking import MASK, mask

MEDIA_TYPE = "application/problem+json"
_MOST_SHOWN = 20
_STATUSES: list[tuple[type[SostenutoError], int]] = [  # the first that fits
    (JobNotFound, 404),
    (NotFound, 404),
    (IllegalTransition, 409),
    (TooManyQueued, 429),
    (DiskFull, 507),
    (FileInTheWay, 409),
    (UnknownPiece, 404),  # as a job to inherit from that is not there
    (StorageError, 503),
    (BrokerUnavailable, 503),
    (UsageError, 422),
]


class Problem(HTTPException):
    """A refusal that the API itself makes. `code` is stable; `detail` is one line for people."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.code = code


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem document; `more` are members beside the usual ones, those that are None left out."""
    body = {
        "type": f"urn:sostenuto:problem:{_kebab(code)}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **{name: value for name, value in more.items() if value is not None},
    }
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA_TYPE)


def response_to(error: SostenutoError, settings: Settings) -> Response:
    """The problem that an error of ours is."""
    status = status_of_error(error)
    headers = {"Retry-After": "5"} if status == 503 else None
    if isinstance(error, TooManyQueued):
        headers = {"Retry-After": f"{error.retry_after:.0f}"}
    return problem_response(
        status,
        type(error).__name__,
        _masked(str(error), settings),
        headers=headers,
        hint=error.hint and _masked(error.hint, settings),
    )


def status_of_error(error: Exception) -> int:
    """The HTTP status that an error is answered with."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RequestValidationError):
        return 422
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def install(app: FastAPI, settings: Settings) -> None:
    """Makes every error of the application a problem."""

    @app.exception_handler(SostenutoError)
    def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, SostenutoError)
        return response_to(error, settings)

    @app.exception_handler(HTTPException)
    def of_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = error.code if isinstance(error, Problem) else HTTPStatus(error.status_code).name.title()
        return problem_response(
            error.status_code,
            code.replace("_", ""),
            _masked(str(error.detail), settings),
            headers=error.headers,
        )

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return invalid_response(error.errors())

    @app.exception_handler(ClientDisconnect)
    def gone(_: Request, __: Exception) -> Response:
        """Whoever sent a part of a body and left gets no answer, and the log no traceback."""
        return Response(status_code=400)

    @app.exception_handler(Exception)
    def unexpected(_: Request, error: Exception) -> Response:
        kind = type(error).__name__
        return problem_response(500, "Unexpected", f"an unexpected {kind}; the server's log tells more")


def invalid_response(errors: Any) -> Response:
    """422 with one entry for each wrong place; what was sent there is not repeated."""
    shown = [
        {"loc": [str(part)[:100] for part in error["loc"]], "msg": str(error["msg"])[:300]}
        for error in list(errors)[:_MOST_SHOWN]
    ]
    detail = "; ".join(f"{'.'.join(entry['loc'])}: {entry['msg']}" for entry in shown[:3])
    return problem_response(422, "InvalidRequest", detail or "the request is not valid", errors=shown)


def _masked(text: str, settings: Settings) -> str:
    for secret in settings.secrets():
        text = text.replace(secret, MASK)
    return mask(text)


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
