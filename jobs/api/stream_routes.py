"""A job's events as they are committed (SSE). A stream that was cut goes on where it was, on any process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from jobs.api.chunks import Place, encoded
from jobs.api.following import stream
from jobs.api.gate import principal_of
from jobs.api.routing import ReadJob
from jobs.api.watching import Watch, Watcher
from storage.observing import Progress

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["records"])
PLACE = r"^(?:[0-9]{1,9}-[0-9]{1,9})?$"

_STREAM = {
    "itemSchema": {
        "type": "object",
        "required": ["id", "event", "data"],
        "properties": {
            "id": {"type": "string", "pattern": r"^[0-9]{1,9}-[0-9]{1,9}$"},
            "event": {"enum": ["history", "message", "live", "end"]},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
    },
    "example": 'id: 1-0\nevent: history\ndata: {"seq": 1, "kind": "submit", "actor": "ann"}\n\n'
    'id: 1-0\nevent: end\ndata: {"state": "cancelled"}\n\n',
}


@router.get(
    "/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": _STREAM}}},
)
async def stream_events(
    request: Request,
    job: ReadJob,
    last_event_id: Annotated[
        Annotated[str, Field(pattern=PLACE)] | SkipJsonSchema[None],
        Header(description="the id of the last event that arrived"),
    ] = None,
    live: Annotated[bool, Query(description="also what the model is writing now")] = False,
) -> Response:
    """History (`event: history`) and transcript (`event: message`) as they are committed, from the beginning.

    With `live`, also the reply that is being written (`event: live`): the newest of them counts, and null takes it back.
    Ends with `event: end` when the job has ended and all was told; without it, when the token is revoked.
    """
    place = Place(*map(int, last_event_id.split("-"))) if last_event_id else Place()
    watcher: Watcher = request.app.state.watcher
    # Whoever resumes may have been told a reply that is gone since.
    records = _Records(watcher, job.id, place, live, None if last_event_id else 0.0)
    return stream(watcher, job.id, principal_of(request).token_id, records, live=live)


@dataclass(slots=True)
class _Records:
    """History and transcript, from the chunks that all streams of the process share."""

    watcher: Watcher
    job_id: str
    place: Place
    live: bool
    told_live: float | None

    async def news(self, progress: Progress, watch: Watch) -> AsyncIterator[bytes]:
        while not self.place.reached(progress) and not watch.over:
            chunk = await self.watcher.chunks.after(self.job_id, self.place, progress)
            if chunk is None:
                return
            for piece in chunk.pieces():
                yield piece
            self.place = chunk.end
        if self.live and progress.live_at != self.told_live and not watch.over:
            written = await self.watcher.live(self.job_id)
            self.told_live = progress.live_at
            yield encoded("live", self.place, written)

    def end(self, progress: Progress) -> bytes:
        return encoded("end", self.place, {"state": progress.state})
