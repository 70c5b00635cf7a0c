"""What every request passes first: host, origin, no credentials in the URL, the token; and the headers of every answer.

It stands before routing, so that no route, present or future, can be without it.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl, urlsplit

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobs.api.problems import Problem, problem_response, response_to
from jobs.api.tokens import PREFIX, Principal, authenticate
from jobs.errors import SostenutoError
from jobs.installation import Installation

OPEN_PATHS = frozenset({"/healthz"})
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_BODY_BYTES = 16 << 20  # the longest instruction, each character escaped, is 12 MB
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CREDENTIAL_NAMES = frozenset({"token", "access_token", "api_key", "apikey", "key", "authorization"})
_ANSWER_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}


class Gate:
    """Refuses what may not pass, and tells the routes whom the request speaks for (`request.state.principal`)."""

    def __init__(self, app: ASGIApp, installation: Installation, hosts: Collection[str]) -> None:
        self._app = app
        self._installation = installation
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # the lifespan; there are no web sockets to reach
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ANSWER_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) or await self._identify(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, self._limited(headers, receive), send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return problem_response(421, "UnknownHost", "this server does not answer for that host name")
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in _SAFE_METHODS and not _same(origin, host):
            return problem_response(403, "ForeignOrigin", "a page of another origin may not change anything")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name.lower() in _CREDENTIAL_NAMES or value.startswith(PREFIX) for name, value in query):
            return problem_response(
                400, "CredentialsInUrl", "URLs end up in logs: send the token in the Authorization header"
            )
        return None

    async def _identify(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] in OPEN_PATHS:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        principal = None
        if scheme.lower() == "bearer":
            try:
                principal = await to_thread.run_sync(authenticate, self._installation.db, token.strip())
            except SostenutoError as error:
                return response_to(error, self._installation.settings)
        if principal is None:
            return problem_response(
                401,
                "Unauthorized",
                "a valid token is needed: Authorization: Bearer sos_…",
                headers={"WWW-Authenticate": 'Bearer realm="sostenuto"'},
            )
        scope.setdefault("state", {})["principal"] = principal
        return None

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


def principal_of(request: Request) -> Principal:
    """Whom the request speaks for; the gate has seen to it."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


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
