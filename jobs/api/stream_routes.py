"""A job's events as they are committed (SSE). A stream that was cut goes on where it was, on any process.

Every item's id is a place in both sequences, the history's and the transcript's. Both are without gaps, and their
numbers become visible in their order, because each is given under the lock of the job's row. So "after this place" is
exact: nothing is lost and nothing comes twice.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from jobs import views
from jobs.api.gate import principal_of
from jobs.api.problems import Problem
from jobs.api.routing import Installed, ReadJob
from jobs.api.schemas import event_dict, message_dict
from jobs.api.watching import POLL_SECONDS, Watch, Watcher
from jobs.errors import StorageError
from jobs.installation import Installation
from storage.observing import Progress
from storage.records import HistoryEvent, Message

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["records"])
HEARTBEAT_SECONDS = 15
_BATCH = 100
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


@dataclass(slots=True)
class _Place:
    """The last history row and the last message that were told."""

    event_seq: int = 0
    message_seq: int = 0

    def __str__(self) -> str:
        return f"{self.event_seq}-{self.message_seq}"

    def reached(self, progress: Progress) -> bool:
        return self.event_seq >= progress.event_seq and self.message_seq >= progress.message_seq


@router.get(
    "/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    job: ReadJob,
    installation: Installed,
    last_event_id: Annotated[str | None, Header(description="the id of the last event that arrived")] = None,
) -> Response:
    """History (`event: history`) and transcript (`event: message`) as they are committed, from the beginning.

    Ends with `event: end` when the job has ended and all was told; without it, when the token is revoked.
    """
    match = _PLACE.fullmatch(last_event_id) if last_event_id else None
    if last_event_id and match is None:
        raise Problem(422, "InvalidRequest", "Last-Event-ID is none of this stream's")
    place = _Place(*(int(part) for part in match.groups())) if match else _Place()
    watcher: Watcher = request.app.state.watcher
    told = _stream(installation, watcher, job.id, principal_of(request).token_id, place)
    return EventSourceResponse(told, ping=HEARTBEAT_SECONDS, sep="\n")


async def _stream(
    installation: Installation, watcher: Watcher, job_id: str, token_id: str, place: _Place
) -> AsyncIterator[ServerSentEvent]:
    async with watcher.watching(job_id, token_id) as watch:
        told: Progress | None = None
        while (progress := await watch.changed(told)) is not None:
            async for item in _news(installation, watcher, watch, place, progress):
                yield item
            if not place.reached(progress):
                await asyncio.sleep(POLL_SECONDS)  # the database went away in between: it is tried again
                continue
            if progress.ended:
                yield _sse("end", place, {"state": progress.state})
                return
            told = progress


async def _news(
    installation: Installation, watcher: Watcher, watch: Watch, place: _Place, progress: Progress
) -> AsyncIterator[ServerSentEvent]:
    """What was committed after `place`, which moves on with each item, at least as far as `progress`."""
    while not place.reached(progress) and not watch.over:
        try:
            items = await to_thread.run_sync(
                _batch, installation, watch.job_id, place, limiter=watcher.limiter
            )
        except StorageError:
            return
        for kind, seq, data in items:
            if kind == "history":
                place.event_seq = seq
            else:
                place.message_seq = seq
            yield _sse(kind, place, data)
        if not items:
            return


def _batch(installation: Installation, job_id: str, place: _Place) -> list[tuple[str, int, dict[str, Any]]]:
    """The next items of both sequences by their times, each in its own order even where a clock was set back."""
    history = views.list_events(installation, job_id, place.event_seq, _BATCH)
    transcript = views.list_messages(installation, job_id, place.message_seq, _BATCH)
    both: list[Iterable[HistoryEvent | Message]] = [history, transcript]
    merged = list(heapq.merge(*both, key=_when))[:_BATCH]
    return [
        ("history", item.seq, event_dict(item))
        if isinstance(item, HistoryEvent)
        else ("message", item.seq, message_dict(item))
        for item in merged
    ]


def _when(item: HistoryEvent | Message) -> tuple[float, bool]:
    """Of one commit, the messages come before the change of state that they led to."""
    return (item.at, True) if isinstance(item, HistoryEvent) else (item.created_at, False)


def _sse(kind: str, place: _Place, data: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data), event=kind, id=str(place), sep="\n")
