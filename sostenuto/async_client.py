"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpx2

from sostenuto.bound import Awaits
from sostenuto.connection import (
    DEFAULT_RETRIES,
    checked_token,
    checked_url,
    headers_of,
    reply_of,
    sent_headers,
    timeout_of,
    timeouts,
)
from sostenuto.flows import (
    MAX_EVENT_BYTES,
    Do,
    Effect,
    Finished,
    Flow,
    Item,
    Next,
    NextEvent,
    Open,
    Raised,
    Reply,
    Request,
    Send,
    Sleep,
    advance,
)
from sostenuto.methods import Methods

T = TypeVar("T")


class AsyncSostenuto(Methods, Awaits):
    """As Sostenuto, for asyncio: methods are awaited, `jobs`, `events` and the like are asynchronous iterators.

    Belongs to one event loop. Files are read and written in threads. An iterator that is left early holds its
    connection until it is closed: `async with contextlib.aclosing(client.events(job)) as events`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float | None = None,
        retries: int = DEFAULT_RETRIES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = checked_url(url)
        self.retries = retries
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers=headers_of(checked_token(token)),
            timeout=timeouts(timeout),
            transport=transport,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        outcome: Any = None
        async with _Performer(self._http) as performer:
            try:
                while not isinstance(effect := advance(flow, outcome), Finished):
                    outcome = await performer.outcome(effect)
                value: T = effect.value
                return value
            finally:
                flow.close()

    async def _each(self, flow: Flow[None]) -> AsyncIterator[Any]:
        outcome: Any = None
        async with _Performer(self._http) as performer:
            try:
                while not isinstance(effect := advance(flow, outcome), Finished):
                    if isinstance(effect, Item):
                        yield effect.value
                        outcome = None
                    else:
                        outcome = await performer.outcome(effect)
            finally:
                flow.close()


class _Performer:
    """Carries out effects, with at most one open answer."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._response: httpx2.Response | None = None
        self._blocks: AsyncIterator[bytes]
        self._events: AsyncIterator[httpx2.ServerSentEvent]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            with suppress(httpx2.HTTPError):
                await self._response.aclose()

    async def outcome(self, effect: Effect) -> Any:
        """What the flow is told: also a cancellation goes through it, so that it cleans up."""
        try:
            return await self._perform(effect)
        except BaseException as error:  # noqa: BLE001  the flow decides
            return Raised(error)

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send(request):
                response = await self._sent(request)
                return reply_of(response, await response.aread())
            case Open(request):
                return await self._opened(request)
            case Next():
                return await anext(self._blocks, None)
            case NextEvent():
                return await anext(self._events, None)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Do(function):
                return await _in_thread(function)
        return None

    async def _opened(self, request: Request) -> Reply:
        await self.__aexit__()
        self._response = await self._sent(request)
        if self._response.status_code >= 300:
            return reply_of(self._response, await self._response.aread())
        self._blocks = self._response.aiter_bytes()
        self._events = aiter(httpx2.EventSource(self._response, MAX_EVENT_BYTES))
        return reply_of(self._response)

    async def _sent(self, request: Request) -> httpx2.Response:
        built = self._http.build_request(
            request.method,
            request.path,
            params=list(request.params) or None,
            headers=dict(sent_headers(request)),
            timeout=timeout_of(request, self._http.timeout),
            content=None if request.body is None else _read_in_threads(request.body.blocks()),
        )
        return await self._http.send(built, stream=True)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Cancelled, it still waits for the thread: what the thread works on may be closed only afterwards."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def _read_in_threads(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (block := await _in_thread(lambda: next(blocks, None))) is not None:
        yield block
