"""Where the server is and how to speak to it: what both clients are made with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2

from sostenuto.errors import Misconfigured
from sostenuto.flows import QUIET_SECONDS, Reply, Request

URL_VARIABLE = "SOSTENUTO_URL"
TOKEN_VARIABLE = "SOSTENUTO_TOKEN"  # noqa: S105  the name of a variable
DEFAULT_URL = "http://127.0.0.1:8787"
DEFAULT_RETRIES = 6
MEMORY_LIMIT = 64 << 20


def checked_url(url: str | None) -> str:
    """The given URL, else the environment's, else where `sostenuto web` listens. Raises Misconfigured."""
    found = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
    parts = urlsplit(found)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misconfigured(
            "the server's URL must be like https://jobs.example.org", hint=f"set {URL_VARIABLE}"
        )
    if parts.username or parts.password:
        raise Misconfigured(
            "the server's URL may not hold credentials", hint=f"the token goes into {TOKEN_VARIABLE}"
        )
    return found


def checked_token(token: str | None) -> str:
    """The given token, else the environment's. Raises Misconfigured, and never shows it."""
    found = (token or os.environ.get(TOKEN_VARIABLE) or "").strip()
    if not found:
        raise Misconfigured(
            "there is no API token", hint=f"set {TOKEN_VARIABLE}; make one with: sostenuto tokens create"
        )
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Misconfigured(
            "the API token has characters that no token has", hint="was all of it copied, and no more?"
        )
    return found


def headers_of(token: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json",
        "User-Agent": "sostenuto-python",
    }


def timeouts(seconds: float | None) -> httpx2.Timeout:
    """For connecting, and for any time in which nothing arrives or leaves."""
    quiet = QUIET_SECONDS if seconds is None else seconds
    return httpx2.Timeout(quiet, connect=min(10.0, quiet))


def timeout_of(request: Request, given: httpx2.Timeout) -> httpx2.Timeout:
    """A stream says something every 15 s: less patience would cut it again and again."""
    return timeouts(max(given.read or 0.0, QUIET_SECONDS)) if request.endless else given


def sent_headers(request: Request) -> Mapping[str, str]:
    return {**request.headers, **(request.body.headers if request.body else {})}


def reply_of(response: httpx2.Response, content: bytes = b"") -> Reply:
    return Reply(response.status_code, response.headers, content)
