"""One poller for all streams of a process: a query tells how far each watched job is, and which credentials hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, to_thread

from jobs.api.chunks import Chunks
from jobs.api.sessions import IDLE_SECONDS
from jobs.errors import StorageError
from jobs.installation import Installation
from jobs.states import State
from storage import accounts, live, observing, sessions
from storage.observing import Progress

POLL_SECONDS = 0.25
WATCH_SECONDS, RENEW_SECONDS = 15.0, 5.0  # how long a job's worker is told that somebody looks, and how often
_THREADS = 1  # to poll, and one to read: streams must not take SQLite's few connections from others


class Watch:
    """A stream's subscription: wakes it when its job is further than it has told, or when it must end."""

    def __init__(self, job_id: str, token_id: str, *, live: bool) -> None:
        self.live = live  # wants to know what is being written
        self.job_id = job_id
        self.token_id = token_id
        self.progress: Progress | None = None
        self.over = False  # the job is gone, or the token no longer holds
        self._news = asyncio.Event()

    async def changed(self, told: Progress | None) -> Progress | None:
        """Waits until the job's progress is another than `told`; None: the stream must end."""
        while not self.over and (self.progress is None or self.progress == told):
            self._news.clear()
            await self._news.wait()
        return None if self.over else self.progress

    def tell(self, progress: Progress | None, *, valid: bool) -> None:
        over = progress is None or not valid
        if over != self.over or progress != self.progress:
            self.over, self.progress = over, progress
            self._news.set()


class Watcher:
    """Polls only while someone watches. Belongs to one event loop."""

    def __init__(self, installation: Installation) -> None:
        self._db = installation.db
        self._watches: set[Watch] = set()
        self._poller: asyncio.Task[None] | None = None
        self._renewed: dict[str, float] = {}
        self._limiter = CapacityLimiter(_THREADS)
        self.chunks = Chunks(installation, CapacityLimiter(_THREADS))
        self.page_limiter = CapacityLimiter(_THREADS)  # for the streams of pages

    @asynccontextmanager
    async def watching(self, job_id: str, token_id: str, *, live: bool = False) -> AsyncIterator[Watch]:
        """A subscription for the length of the block. The job and the token have been checked.

        `live`: the job's worker tells what is being written, and `Progress.live_at` when it did.
        """
        watch = Watch(job_id, token_id, live=live)
        self._watches.add(watch)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    async def live(self, job_id: str) -> dict[str, Any] | None:
        """What is being written now, as it is told to programs. The job has been checked."""
        reply = await to_thread.run_sync(live.live_reply, self._db, job_id, limiter=self.page_limiter)
        return None if reply is None else {"seq": reply.seq, **reply.data}

    async def _poll(self) -> None:
        try:
            await self._poll_while_watched()
        finally:
            # Whatever stopped it, an error that nobody foresaw too: the streams end, their clients come again.
            for watch in self._watches:
                watch.tell(None, valid=False)

    async def _poll_while_watched(self) -> None:
        while self._watches:
            watches = list(self._watches)
            try:
                progress, valid = await to_thread.run_sync(self._asked, watches, limiter=self._limiter)
            except StorageError:
                pass  # the streams wait, with their heartbeats, until the database is back
            else:
                for watch in watches:
                    watch.tell(progress.get(watch.job_id), valid=watch.token_id in valid)
            await asyncio.sleep(POLL_SECONDS)

    def _asked(self, watches: list[Watch]) -> tuple[dict[str, Progress], set[str]]:
        progress = observing.progress_of(self._db, {watch.job_id for watch in watches})
        ids = {watch.token_id for watch in watches}
        valid = accounts.valid_token_ids(self._db, ids)
        if valid < ids:
            valid |= sessions.valid_session_ids(self._db, ids - valid, IDLE_SECONDS)
        self._tell_workers(watches, progress)
        return progress, valid

    def _tell_workers(self, watches: list[Watch], progress: dict[str, Progress]) -> None:
        """Renews the watches of running jobs that somebody looks at; those of others cost nothing."""
        running = {job_id for job_id, found in progress.items() if found.state == State.RUNNING}
        now = time.monotonic()
        due = {
            watch.job_id
            for watch in watches
            if watch.live
            and watch.job_id in running
            and now - self._renewed.get(watch.job_id, -RENEW_SECONDS) >= RENEW_SECONDS
        }
        if due:
            live.watch_jobs(self._db, due, WATCH_SECONDS)
        self._renewed = {
            job_id: at for job_id, at in self._renewed.items() if job_id in running
        } | dict.fromkeys(due, now)
