"""A job's events as they are committed (SSE). A stream that was cut goes on where it was, on any process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from sse_starlette import EventSourceResponse

from jobs.api.chunks import Place, encoded
from jobs.api.gate import principal_of
from jobs.api.problems import Problem
from jobs.api.routing import ReadJob
from jobs.api.watching import POLL_SECONDS, Watcher

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["records"])
HEARTBEAT_SECONDS = 15
_HEARTBEAT = b": still here\n\n"
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


@router.get(
    "/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    job: ReadJob,
    last_event_id: Annotated[str | None, Header(description="the id of the last event that arrived")] = None,
) -> Response:
    """History (`event: history`) and transcript (`event: message`) as they are committed, from the beginning.

    Ends with `event: end` when the job has ended and all was told; without it, when the token is revoked.
    """
    match = _PLACE.fullmatch(last_event_id) if last_event_id else None
    if last_event_id and match is None:
        raise Problem(422, "InvalidRequest", "Last-Event-ID is none of this stream's")
    place = Place(*(int(part) for part in match.groups())) if match else Place()
    watcher: Watcher = request.app.state.watcher
    told = _stream(watcher, job.id, principal_of(request).token_id, place)
    # The heartbeats are ours: the library's could fall between two pieces of one event.
    return EventSourceResponse(told, ping=0)


async def _stream(watcher: Watcher, job_id: str, token_id: str, place: Place) -> AsyncIterator[bytes]:
    async with watcher.watching(job_id, token_id) as watch:
        told = None
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    progress = await watch.changed(told)
            except TimeoutError:
                yield _HEARTBEAT
                continue
            if progress is None:
                return
            while not place.reached(progress) and not watch.over:
                chunk = await watcher.chunks.after(job_id, place, progress)
                if chunk is None:
                    break
                for piece in chunk.pieces():
                    yield piece
                place = chunk.end
            if not place.reached(progress):
                yield _HEARTBEAT
                await asyncio.sleep(POLL_SECONDS)  # the database went away in between: it is tried again
                continue
            if progress.ended:
                yield encoded("end", place, {"state": progress.state})
                return
            told = progress
