"""Logging in and out with a browser."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

from jobs.api import sessions
from jobs.api.problems import Problem
from jobs.api.resources import LoggedIn
from jobs.api.routing import Installed, SignedIn
from jobs.api.sessions import COOKIE, Throttle, csrf_of, log_in, log_out
from jobs.views import iso
from jobs.web.login import login_page

router = APIRouter(tags=["system"])
_MOST_BYTES = 4096
_FORM = "application/x-www-form-urlencoded"
_WRONG = "This code is not valid: it is unknown, was used, or is too old. Make a new one: sostenuto tokens login-code"
_CODE_SCHEMA = {
    "type": "object",
    "required": ["code"],
    "properties": {"code": {"type": "string", "minLength": 1}},
}
_LOGIN_BODY = {
    "security": [],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _CODE_SCHEMA, "example": {"code": "7Q2KD-0VX4M-…"}},
            _FORM: {"schema": _CODE_SCHEMA, "example": {"code": "7Q2KD-0VX4M-…"}},
        },
    },
}
_LOGGED_IN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the cookie is set",
        "model": LoggedIn,
    },
    303: {"description": "the same for a form: on to the page"},
    401: {
        "description": "the code is not valid: a problem, or for a form the login page again",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}},
            "text/html": {"schema": {"type": "string"}},
        },
    },
}


@router.get("/login", include_in_schema=False)
def show_login(request: Request) -> HTMLResponse:
    """The login page; a code in the URL's fragment is sent by its script."""
    return HTMLResponse(login_page(request))


@router.post("/login", response_class=JSONResponse, responses=_LOGGED_IN, openapi_extra=_LOGIN_BODY)
async def login(request: Request, installation: Installed) -> Response:
    """Exchange a one-time code for a session cookie.

    JSON is answered with JSON, which also holds the session's CSRF token; a form with the page, or the login page again.
    """
    as_form = request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM
    throttle: Throttle = request.app.state.throttle
    address = request.client.host if request.client else ""
    if wait := throttle.refused_for(address):
        raise Problem(429, "TooManyLogins", "too many failed logins", {"Retry-After": str(int(wait) + 1)})
    code = _code_in(await _short_body(request), as_form=as_form)
    made = await run_in_threadpool(log_in, installation.db, code)
    if made is None:
        throttle.failed(address)
        if as_form:
            return HTMLResponse(login_page(request, failed=True), 401)
        raise Problem(401, "LoginFailed", _WRONG)
    value, row = made
    answer: Response
    if as_form:
        answer = RedirectResponse("/", 303)
    else:
        told = {"owner": row.owner, "scopes": row.scopes, "expires_at": iso(row.expires_at)}
        answer = JSONResponse(told | {"csrf_token": csrf_of(value)})
    answer.set_cookie(
        COOKIE,
        value,
        max_age=int(sessions.LONGEST_SECONDS),
        path="/",
        secure=_is_https(request),
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/logout", status_code=204, response_class=Response)
def logout(request: Request, installation: Installed, principal: SignedIn) -> Response:
    """End the session of this cookie. With a token instead, nothing is to be ended: 409."""
    if principal.kind != "session":
        raise Problem(409, "NoSession", "a token has no session: revoke it with DELETE /api/tokens/ID")
    log_out(installation.db, principal)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/", secure=_is_https(request), httponly=True, samesite="strict")
    return answer


def _is_https(request: Request) -> bool:
    """Behind a proxy with TLS only the browser's own Origin tells; it is checked against the Host."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


async def _short_body(request: Request) -> bytes:
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > _MOST_BYTES:
            raise Problem(413, "BodyTooLarge", f"at most {_MOST_BYTES:,} bytes are taken")
    return body


def _code_in(body: bytes, *, as_form: bool) -> str:
    try:
        if as_form:
            code = parse_qs(body.decode(), max_num_fields=10).get("code", [None])[0]
        else:
            document = json.loads(body)
            code = document.get("code") if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        code = None
    if not isinstance(code, str):
        raise Problem(422, "InvalidRequest", 'send {"code": "…"} as JSON, or a form with the field code')
    return code
