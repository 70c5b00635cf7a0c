"""The HTTP/1.1 that the endpoint speaks: requests off a stream, answers onto it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection; None where the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, separator, value = line.partition(":")
            if separator:
                headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(min(int(headers.get("content-length", "0")), MAX_BODY))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return HttpRequest(method, path, headers, body)


def whole(status: int, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole answer; a body that is no bytes is sent as JSON."""
    given = dict(headers or {})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    if data is not body:
        given.setdefault("Content-Type", "application/json")
    return _head(status, {**given, "Content-Length": str(len(data))}) + data


def stream_head(content_type: str) -> bytes:
    """The head of an answer whose body comes in chunks."""
    return _head(
        200, {"Content-Type": content_type, "Transfer-Encoding": "chunked", "Cache-Control": "no-cache"}
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END_OF_CHUNKS = b"0\r\n\r\n"


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
