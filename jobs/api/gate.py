"""What every request passes first: host, origin, no credentials in the URL, the token; and the headers of every answer.

It stands before routing, so that no route, present or future, can be without it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection
from urllib.parse import parse_qsl, urlsplit

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request, cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobs.api.denials import DENIED, Denial, DenialLog
from jobs.api.metrics import Metrics
from jobs.api.problems import Problem, problem_response, response_to
from jobs.api.sessions import COOKIE, COOKIE_PREFIX, session_principal
from jobs.api.tokens import PREFIX, Principal, authenticate
from jobs.audit import Source, coming_from
from jobs.errors import SostenutoError
from jobs.installation import Installation
from jobs.web.login import login_page

OPEN_PATHS = frozenset({"/healthz", "/login"})
OPEN_PREFIX = "/assets/"  # what the login page needs
CSRF_HEADER = "X-CSRF-Token"
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_BODY_BYTES = 16 << 20  # the longest instruction, each character escaped, is 12 MB
_SYSTEM_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CREDENTIAL_NAMES = frozenset({"token", "access_token", "api_key", "apikey", "key", "authorization"})
_ANSWER_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_API_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Gate:
    """Refuses what may not pass, and tells the routes whom the request speaks for (`request.state.principal`)."""

    def __init__(
        self, app: ASGIApp, installation: Installation, hosts: Collection[str], metrics: Metrics
    ) -> None:
        self._app = app
        self._installation = installation
        self._metrics = metrics
        self._denials = DenialLog(installation.db)
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(scope, receive, send)  # the lifespan; there are no web sockets to reach
            return

        began = time.monotonic()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", None)
                self._metrics.count(scope["method"], route, message["status"], time.monotonic() - began)
                if message["status"] in DENIED:
                    self._note_denial(scope, message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in _ANSWER_HEADERS.items():
                    headers[name] = value
                policy = _PAGE_POLICY if is_page(scope["path"]) else _API_POLICY
                headers.setdefault("Content-Security-Policy", policy)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) or await self._identify(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        with coming_from(_source(scope)):
            await self._app(scope, self._limited(headers, receive), send_with_headers)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._denials.start()
        try:
            await self._app(scope, receive, send)
        finally:
            await to_thread.run_sync(self._denials.stop)

    def _note_denial(self, scope: Scope, status: int) -> None:
        source, principal = _source(scope), _principal_in(scope)
        self._denials.note(
            Denial(
                status,
                scope["method"],
                scope["path"],
                Headers(scope=scope).get("host", ""),
                source.address or "",
                principal.owner if principal else "",
                source.credential,
                is_admin=principal is not None and principal.is_admin,
            )
        )

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return problem_response(421, "UnknownHost", "this server does not answer for that host name")
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in _SAFE_METHODS and not _same(origin, host):
            return problem_response(403, "ForeignOrigin", "a page of another origin may not change anything")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(
            name.lower() in _CREDENTIAL_NAMES or value.startswith((PREFIX, COOKIE_PREFIX))
            for name, value in query
        ):
            return problem_response(
                400, "CredentialsInUrl", "URLs end up in logs: send the token in the Authorization header"
            )
        return None

    async def _identify(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIX):
            return None
        try:
            principal = await to_thread.run_sync(self._principal, headers)
        except SostenutoError as error:
            return response_to(error, self._installation.settings)
        if principal is None:
            return _unknown(scope)
        if scope["method"] not in _SAFE_METHODS and principal.csrf is not None:
            given = headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(given.encode(errors="replace"), principal.csrf.encode()):
                return problem_response(
                    403, "CsrfTokenMissing", f"a session must send its token in the header {CSRF_HEADER}"
                )
        scope.setdefault("state", {})["principal"] = principal
        return None

    def _principal(self, headers: Headers) -> Principal | None:
        """Whom the token speaks for, else the cookie. A token that does not hold is not mended by a cookie."""
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return authenticate(self._installation.db, token.strip()) if scheme.lower() == "bearer" else None
        cookie = _cookie(headers)
        return None if cookie is None else session_principal(self._installation.db, cookie)

    def _limited(self, headers: Headers, receive: Receive) -> Receive:
        """Bodies are counted as they come: a declared length may be a lie, or missing."""
        binary = not headers.get("content-type", "").startswith("application/json")
        uploads = self._installation.settings.max_workspace_bytes
        most = MAX_BODY_BYTES + (uploads if binary else 0)
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            declared = headers.get("content-length", "")
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most or (declared.isdigit() and int(declared) > most):
                raise Problem(413, "BodyTooLarge", f"at most {most:,} bytes are taken")
            return message

        return limited


def _principal_in(scope: Scope) -> Principal | None:
    principal = scope.get("state", {}).get("principal")
    return principal if isinstance(principal, Principal) else None


def _source(scope: Scope) -> Source:
    """For the audit log: the door and the credential of a request that has passed."""
    principal = _principal_in(scope)
    address = scope["client"][0] if scope.get("client") else None
    if principal is None:
        return Source("page" if is_page(scope["path"]) else "api", None, address)
    return Source("page" if principal.kind == "session" else "api", principal.token_id, address)


def principal_of(request: Request) -> Principal:
    """Whom the request speaks for; the gate has seen to it."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


def csrf_token(request: Request) -> str:
    """What a page must send with unsafe requests of this session, in X-CSRF-Token; empty for a token's requests."""
    return principal_of(request).csrf or ""


def is_page(path: str) -> bool:
    """Whether the path belongs to the page, which is for people; the rest is for programs."""
    return not (path == "/api" or path.startswith("/api/") or path in _SYSTEM_PATHS)


def _unknown(scope: Scope) -> Response:
    """401; a person who opens a page gets the login page with it."""
    headers = {"WWW-Authenticate": 'Bearer realm="sostenuto"'}
    if is_page(scope["path"]) and scope["method"] in ("GET", "HEAD"):
        return HTMLResponse(login_page(HTTPConnection(scope)), 401, headers)
    detail = "a valid token is needed: Authorization: Bearer sos_…"
    return problem_response(401, "Unauthorized", detail, headers=headers)


def _cookie(headers: Headers) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE)


def _name_of(host: str) -> str:
    """A Host header without its port."""
    name, separator, port = host.rpartition(":")
    return (name if separator and (port.isdigit() or not port) else host).lower()


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
