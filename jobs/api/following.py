"""Following a job: what streams of every kind do while they are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from fastapi import Response
from sse_starlette import EventSourceResponse

from jobs.api.chunks import Place
from jobs.api.watching import POLL_SECONDS, Watch, Watcher
from jobs.errors import JobNotFound, StorageError
from storage.observing import Progress

HEARTBEAT_SECONDS = 15
_HEARTBEAT = b": still here\n\n"


class Teller(Protocol):
    """What one stream tells, and how far it has come."""

    place: Place

    def news(self, progress: Progress, watch: Watch) -> AsyncIterator[bytes]:
        """What was committed after `place`, which is moved behind it. It may stop short: it is asked again."""

    def end(self, progress: Progress) -> bytes:
        """The last event: the job has ended, and all was told."""


def stream(watcher: Watcher, job_id: str, token_id: str, teller: Teller, *, live: bool = False) -> Response:
    """The answer that follows the job to its end, or until the credential no longer holds; `live` see Watcher."""
    # The heartbeats are ours: the library's could fall between two pieces of one event.
    return EventSourceResponse(_followed(watcher, job_id, token_id, teller, live=live), ping=0)


async def _followed(
    watcher: Watcher, job_id: str, token_id: str, teller: Teller, *, live: bool
) -> AsyncIterator[bytes]:
    async with watcher.watching(job_id, token_id, live=live) as watch:
        told: Progress | None = None
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    progress = await watch.changed(told)
            except TimeoutError:
                yield _HEARTBEAT
                continue
            if progress is None:
                return
            try:
                async for part in teller.news(progress, watch):
                    yield part
            except JobNotFound:
                return
            except StorageError:
                pass
            else:
                told = progress if teller.place.reached(progress) else told
            if told != progress:  # the database went away in between: it is tried again
                yield _HEARTBEAT
                await asyncio.sleep(POLL_SECONDS)
            elif progress.ended:
                yield teller.end(progress)
                return
