"""What a server behind a URL may send: no answer is endless."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

LONGEST_BODY = 16 << 20  # bytes of a JSON answer; events have their own limit


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Ends an answer that is no event stream when it has become too long."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > LONGEST_BODY:
                raise httpx2.ReadError(f"an answer of more than {LONGEST_BODY >> 20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
