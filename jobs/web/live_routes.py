"""A job's page as it changes: HTML by server-sent events, resumed where a broken connection left off.

Each event's id is a place in the job's history and transcript, as in the API's stream of the same records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from sse_starlette import ServerSentEvent

from jobs.api.chunks import Place, next_rows
from jobs.api.following import stream
from jobs.api.gate import principal_of
from jobs.api.routing import Installed, ReadJob
from jobs.api.tokens import Scope
from jobs.api.watching import Watch, Watcher
from jobs.installation import Installation
from jobs.web.conversation import items_of
from jobs.web.job_routes import parse_place
from jobs.web.pages import PageRoute
from jobs.web.panels import panels_html
from jobs.web.templating import render
from jobs.web.words import Words, words_for
from storage.live import live_reply
from storage.observing import Progress
from storage.records import HistoryEvent

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)


@dataclass(slots=True)
class _Shown:
    """What one browser has been sent."""

    watcher: Watcher
    installation: Installation
    job_id: str
    owner: str | None
    words: Words
    place: Place
    shows_images: bool
    items: bool = True  # False: a tab that shows no conversation
    panels: str = ""
    told: Progress | None = None
    told_live: float | None = None  # not yet: the page may show a reply that is gone since it was made

    def next_items(self, progress: Progress) -> str | None:
        """The next rows as HTML, the place moved behind them; None: there are none."""
        rows = next_rows(self.installation, self.job_id, self.place, progress)
        if not rows:
            return None
        items = items_of(self.installation, self.job_id, rows)
        zone = self.installation.settings.zone()
        html = render(
            "items.html", self.words, zone, items=items, job_id=self.job_id, shows_images=self.shows_images
        )
        for row in rows:
            name = "event_seq" if isinstance(row, HistoryEvent) else "message_seq"
            self.place = self.place._replace(**{name: row.seq})
        return html

    def written(self) -> str:
        """The reply that is being written, or nothing in its place."""
        reply = live_reply(self.installation.db, self.job_id)
        zone = self.installation.settings.zone()
        return render("written.html", self.words, zone, written=reply, job_id=self.job_id)

    def next_panels(self) -> str | None:
        """The panels, if they are others than those sent last."""
        html = panels_html(self.installation, self.job_id, self.owner, self.words)
        if html == self.panels:
            return None
        self.panels = html
        return html

    async def news(self, progress: Progress, watch: Watch) -> AsyncIterator[bytes]:
        """The next rows, the reply that is being written, and then the panels where they have changed."""
        threads = self.watcher.page_limiter
        if not self.items:
            self.place = Place(progress.event_seq, progress.message_seq)
        while not self.place.reached(progress) and not watch.over:
            html = await to_thread.run_sync(self.next_items, progress, limiter=threads)
            if html is None:
                break
            yield _sse("items", self.place, html)
        if self.items and progress.live_at != self.told_live and not watch.over:
            html = await to_thread.run_sync(self.written, limiter=threads)
            self.told_live = progress.live_at
            yield _sse("items", self.place, html)
        if self.told is not None and replace(self.told, live_at=progress.live_at) == progress:
            return  # only what is being written has changed
        panels = await to_thread.run_sync(self.next_panels, limiter=threads)
        self.told = progress
        if panels is not None:
            yield _sse("panels", self.place, panels)

    def end(self, progress: Progress) -> bytes:
        """The state in which it ended."""
        return _sse("end", self.place, progress.state)


@router.get("/live")
async def live(
    request: Request,
    job: ReadJob,
    installation: Installed,
    after: Annotated[str, Query(max_length=30)] = "0-0",
    items: bool = True,
) -> Response:
    """What was committed after a place, as HTML, until the job has ended; without `items` the panels alone."""
    place = Place(*(parse_place(request.headers.get("last-event-id") or after) or ()))
    principal = principal_of(request)
    words = words_for(request)
    shows_images = principal.may(Scope.FILES_READ)
    watcher: Watcher = request.app.state.watcher
    shown = _Shown(watcher, installation, job.id, principal.sees, words, place, shows_images, items)
    return stream(watcher, job.id, principal.token_id, shown, live=items)


def _sse(kind: str, place: Place, html: str) -> bytes:
    return ServerSentEvent(html, event=kind, id=str(place), sep="\n").encode()
