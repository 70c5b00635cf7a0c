"""Denials, written to the audit log by a thread of their own: an answer neither waits for it nor tells by its time."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.errors import JobNotFound, SostenutoError
from storage import audit
from storage.audit import AuditRecord
from storage.engine import Database
from storage.jobs import get_job
from storage.masking import MASK

log = logging.getLogger(__name__)
DENIED = frozenset({401, 403, 404, 421, 429})
# A token, a cookie's value or a login code that somebody put into a path, and that may be a good one.
_CREDENTIAL = re.compile(r"soss?_[A-Za-z0-9_-]{20,}|[0-9A-Za-z]{5}(?:-[0-9A-Za-z]{5}){3}")
_JOB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Denial:
    """A refused request. `actor` and `credential` are empty where nobody was known."""

    status: int
    method: str
    path: str
    host: str
    address: str
    actor: str = ""
    credential: str | None = None
    is_admin: bool = False


class DenialLog:
    """At most `BURST` records at once and one each `SECONDS_EACH` after them, some 2 MB a day: a flood is counted.

    A 404 is a denial where the job exists and is someone else's.
    """

    BURST = 100
    SECONDS_EACH = 10.0
    _MOST_WAITING = 1000

    def __init__(self, db: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._waiting: queue.Queue[Denial | None] = queue.Queue(self._MOST_WAITING)
        self._left = float(self.BURST)
        self._filled_at = clock()
        self._suppressed = 0
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="denials", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, within a few seconds."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(5)

    def note(self, denial: Denial) -> None:
        """Never waits. Where too many wait already, it is only counted."""
        try:
            self._waiting.put_nowait(denial)
        except queue.Full:
            self._count_suppressed()

    def _run(self) -> None:
        while (denial := self._waiting.get()) is not None:
            try:
                self.write(denial)
            except SostenutoError as error:
                log.warning("a denial could not be recorded: %s", error)
        try:
            audit.add_records(self._db, *self._suppressed_until_now())
        except SostenutoError as error:
            log.warning("suppressed denials could not be recorded: %s", error)

    def write(self, denial: Denial) -> None:
        """Records it, or counts it where there were too many."""
        job_id = self._job_of(denial)
        if denial.status == 404 and job_id is None:
            return
        now = self._clock()
        self._left = min(self.BURST, self._left + (now - self._filled_at) / self.SECONDS_EACH)
        self._filled_at = now
        if self._left < 1:
            self._count_suppressed()
            return
        self._left -= 1
        kind = "login_failed" if denial.path == "/login" and denial.status in (401, 429) else "denied"
        data = {"status": denial.status, "method": denial.method, "path": _without_credentials(denial.path)}
        data["host"] = _without_credentials(denial.host)
        record = AuditRecord(kind, denial.actor, "api", job_id, denial.credential, denial.address, data)
        audit.add_records(self._db, *self._suppressed_until_now(), record)

    def _count_suppressed(self) -> None:
        with self._mutex:
            self._suppressed += 1

    def _suppressed_until_now(self) -> list[AuditRecord]:
        with self._mutex:
            count, self._suppressed = self._suppressed, 0
        return [AuditRecord("denials_suppressed", "", "api", data={"count": count})] if count else []

    def _job_of(self, denial: Denial) -> str | None:
        """The path's job, where it is someone else's."""
        match = _JOB_ID.search(denial.path)
        if match is None or denial.is_admin or not denial.actor:
            return None
        try:
            return match[0] if get_job(self._db, match[0])["owner"] != denial.actor else None
        except JobNotFound:
            return None


def _without_credentials(text: str) -> str:
    return _CREDENTIAL.sub(MASK, text)
