"""The client for programs that wait: each call returns when the server has answered."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpx2

from sostenuto.bound import Waits
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


class Sostenuto(Methods, Waits):
    """A server, as one token's owner sees it. May be shared by threads; close it, or use it as a context manager.

    `url` and `token` come from SOSTENUTO_URL and SOSTENUTO_TOKEN where they are not given. A request that failed is
    repeated up to `retries` times, with growing pauses (about 10 s in all), when nothing can happen twice by it: it
    never reached the server, or it only reads, or it has a key. Others raise ConnectionFailed at once. `timeout` is
    the longest silence, in seconds, not the longest call.

    Every method raises the errors of `sostenuto.errors`, and where a job is wanted takes a Job or its id.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float | None = None,
        retries: int = DEFAULT_RETRIES,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.url = checked_url(url)
        self.retries = retries
        self._http = httpx2.Client(
            base_url=self.url,
            headers=headers_of(checked_token(token)),
            timeout=timeouts(timeout),
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        driving = self._driven(flow)
        try:
            while True:
                next(driving)
        except StopIteration as end:
            value: T = end.value
            return value

    def _each(self, flow: Flow[None]) -> Iterator[Any]:
        return self._driven(flow)

    def _driven(self, flow: Flow[T]) -> Generator[Any, None, T]:
        """Carries out a flow's effects; yields its items."""
        outcome: Any = None
        with _Performer(self._http) as performer:
            try:
                while True:
                    effect = advance(flow, outcome)
                    if isinstance(effect, Finished):
                        value: T = effect.value
                        return value
                    outcome = None
                    if isinstance(effect, Item):
                        yield effect.value
                        continue
                    try:
                        outcome = performer.perform(effect)
                    except BaseException as error:  # noqa: BLE001  the flow decides, and cleans up
                        outcome = Raised(error)
            finally:
                flow.close()


class _Performer:
    """Carries out effects, with at most one open answer."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._response: httpx2.Response | None = None
        self._blocks: Iterator[bytes] = iter(())
        self._events: Iterator[httpx2.ServerSentEvent] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._response is not None:
            with suppress(httpx2.HTTPError):
                self._response.close()

    def perform(self, effect: Effect) -> Any:
        match effect:
            case Send(request):
                response = self._sent(request)
                return reply_of(response, response.read())
            case Open(request):
                return self._opened(request)
            case Next():
                return next(self._blocks, None)
            case NextEvent():
                return next(self._events, None)
            case Sleep(seconds):
                time.sleep(seconds)
            case Do(function):
                return function()
        return None

    def _opened(self, request: Request) -> Reply:
        self.__exit__()
        self._response = self._sent(request)
        if self._response.status_code >= 300:
            return reply_of(self._response, self._response.read())
        self._blocks = self._response.iter_bytes()
        self._events = iter(httpx2.EventSource(self._response, MAX_EVENT_BYTES))
        return reply_of(self._response)

    def _sent(self, request: Request) -> httpx2.Response:
        built = self._http.build_request(
            request.method,
            request.path,
            params=list(request.params) or None,
            headers=dict(sent_headers(request)),
            timeout=timeout_of(request, self._http.timeout),
            content=None if request.body is None else request.body.blocks(),
        )
        return self._http.send(built, stream=True)
