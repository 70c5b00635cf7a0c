"""What streams of events send: read and encoded once for all streams of a process that are at the same place.

Every item's id is a place in both sequences of its job, the history's and the transcript's. Both are without gaps, their
numbers become visible in their order (each is given under the lock of the job's row), and a row never changes. So
"after this place" is exact, and what comes after it may be kept: streams that follow a job live are all at the place
that the poller told them, and share one reading of what is new.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread
from sse_starlette import ServerSentEvent

from jobs import views
from jobs.api.schemas import event_dict, message_dict
from jobs.errors import StorageError
from jobs.installation import Installation
from storage.observing import Progress
from storage.records import HistoryEvent, Message

BATCH = 40  # rows of each sequence that are read at once
CHUNK_BYTES = (
    64 << 10
)  # a reader that stands still holds no more than this, or one larger item that others hold too
KEPT_BYTES = 8 << 20
READ_BYTES = 2 << 20  # what one reading keeps: were it more, its own end would push out its beginning
_ENTRY_BYTES = 600  # what keeping a chunk costs beside its body


class Place(NamedTuple):
    """The last history row and the last message that were told."""

    event_seq: int = 0
    message_seq: int = 0

    def __str__(self) -> str:
        return f"{self.event_seq}-{self.message_seq}"

    def reached(self, progress: Progress) -> bool:
        return self.event_seq >= progress.event_seq and self.message_seq >= progress.message_seq


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole events, encoded, and the place after them."""

    body: bytes
    end: Place

    def pieces(self) -> Iterator[bytes]:
        """The body in pieces small enough for one send: the server copies what its client does not take at once."""
        for start in range(0, len(self.body), CHUNK_BYTES):
            yield self.body[start : start + CHUNK_BYTES]


class Chunks:
    """Reads through the limiter's threads; keeps the chunks used last. Belongs to one event loop."""

    def __init__(self, installation: Installation, limiter: CapacityLimiter) -> None:
        self._installation = installation
        self._limiter = limiter
        self._kept: OrderedDict[tuple[str, Place], Chunk] = OrderedDict()
        self._kept_bytes = 0
        self._reading: dict[tuple[str, Place], asyncio.Task[Chunk | None]] = {}

    async def after(self, job_id: str, place: Place, progress: Progress) -> Chunk | None:
        """The first of what was committed after `place`, up to `progress`; None where the database is away.

        The caller has checked that the job may be read, and that it is further than `place`.
        """
        key = (job_id, place)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._reading:
            self._reading[key] = asyncio.create_task(self._read(job_id, place, progress))
            self._reading[key].add_done_callback(lambda _: self._reading.pop(key))
        return await asyncio.shield(self._reading[key])  # others wait for it too

    async def _read(self, job_id: str, place: Place, progress: Progress) -> Chunk | None:
        try:
            found = await to_thread.run_sync(
                _chunks, self._installation, job_id, place, progress, limiter=self._limiter
            )
        except StorageError:
            return None
        start = place
        for chunk in found:
            self._keep((job_id, start), chunk)
            start = chunk.end
        return found[0] if found else None

    def _keep(self, key: tuple[str, Place], chunk: Chunk) -> None:
        if key in self._kept:
            return
        self._kept[key] = chunk
        self._kept_bytes += len(chunk.body) + _ENTRY_BYTES
        while self._kept_bytes > KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.body) + _ENTRY_BYTES


def encoded(kind: str, place: Place, data: dict[str, Any] | None) -> bytes:
    """One event as it is sent."""
    return ServerSentEvent(json.dumps(data), event=kind, id=str(place), sep="\n").encode()


def _chunks(installation: Installation, job_id: str, place: Place, progress: Progress) -> list[Chunk]:
    found: list[Chunk] = []
    body = bytearray()
    size = 0
    before = place
    for item in next_rows(installation, job_id, place, progress):
        if isinstance(item, HistoryEvent):
            place = place._replace(event_seq=item.seq)
            sent = encoded("history", place, event_dict(item))
        else:
            place = place._replace(message_seq=item.seq)
            sent = encoded("message", place, message_dict(item))
        if body and len(body) + len(sent) > CHUNK_BYTES:
            found.append(Chunk(bytes(body), before))
            body.clear()
            size += len(found[-1].body)
            if size > READ_BYTES:
                return found
        body += sent
        before = place
    if body:
        found.append(Chunk(bytes(body), place))
    return found


def next_rows(
    installation: Installation, job_id: str, place: Place, progress: Progress
) -> list[HistoryEvent | Message]:
    """The next items of both sequences by their times, each in its own order even where a clock was set back."""
    history = views.list_events(installation, job_id, place.event_seq, BATCH)
    transcript = views.list_messages(installation, job_id, place.message_seq, BATCH)
    both: list[Iterable[HistoryEvent | Message]] = [
        [event for event in history if event.seq <= progress.event_seq],
        [message for message in transcript if message.seq <= progress.message_seq],
    ]
    return list(heapq.merge(*both, key=when))[:BATCH]


def when(item: HistoryEvent | Message) -> tuple[float, bool]:
    """Of one commit, the messages come before the change of state that they led to."""
    return (item.at, True) if isinstance(item, HistoryEvent) else (item.created_at, False)
