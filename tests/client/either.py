"""The asynchronous client behind the synchronous one's methods, so that one test proves both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

from sostenuto import AsyncSostenuto, Sostenuto

KINDS = ["sync", "async"]


class _Blocking:
    def __init__(self, **how: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncSostenuto(**how)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return (
                self._loop.run_until_complete(result)
                if inspect.isawaitable(result)
                else self._iterated(result)
            )

        return call

    def _iterated(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._loop.run_until_complete(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._loop.run_until_complete(items.aclose())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def make_client(kind: str, **how: Any) -> Sostenuto:
    """A client of this kind, with the synchronous one's methods."""
    return Sostenuto(**how) if kind == "sync" else cast(Sostenuto, _Blocking(**how))
