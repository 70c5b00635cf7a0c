"""`python -m benchmarks.pages`: how long the server takes for the page's first views of a large installation.

100,000 jobs, of which one has 10,000 events and as many messages. The whole way is taken, from the gate to the HTML, within
this process: no socket, no browser.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import sqlalchemy as sa

from jobs.api.application import create_app
from jobs.api.tokens import Scope, create_token
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from storage.engine import Database
from storage.migrate import upgrade
from storage.models import job_events, jobs, messages

JOBS, EVENTS = 100_000, 10_000
ROUNDS = 15
OWNER = "bench"
WORDS = [
    "report",
    "invoice",
    "table",
    "chart",
    "letter",
    "summary",
    "translate",
    "check",
    "compare",
    "collect",
    "shop",
    "year",
    "harbour",
]
STATES = ("succeeded",) * 90 + ("failed",) * 5 + ("cancelled",) * 2 + ("queued", "paused", "waiting_human")


@dataclass(frozen=True, slots=True)
class PageTime:
    """One view: how long each of its answers took, in milliseconds."""

    view: str
    times: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def page_times(
    folder: Path, *, jobs_count: int = JOBS, events: int = EVENTS, url: str = ""
) -> list[PageTime]:
    """Each view's times; `url` names a Postgres database instead of SQLite in the folder. Raises if a view fails."""
    settings = Settings(data_dir=folder, database_url=url or f"sqlite:///{folder}/bench.db")
    with closing(Database(settings.database_url)) as db:
        upgrade(db)
    with open_installation(settings) as installation:
        long_job = _fill(installation, jobs_count, events)
        token, _ = create_token(installation.db, OWNER, list(Scope), None)
        return asyncio.run(_measure(installation, token, _views(long_job)))


def _views(long_job: str) -> dict[str, str]:
    job = f"/jobs/{long_job}"
    return {
        "the list": "/",
        "the list, of a state": "/?state=failed",
        "the list, of three states": "/?state=ended",
        "the list, a word in few titles": "/?q=harbour",
        "the list, a text in no title": "/?q=xyzzy",
        "the list, a repository": "/?repository=repo-7",
        "the list, a repository nobody named": "/?repository=none",
        "who waits, which every page asks": "/attention",
        "a new task": "/new",
        "the workers": "/workers",
        "the long job: conversation": job,
        "the long job: progress": f"{job}/progress",
        "the long job: files": f"{job}/files",
        "the long job: history": f"{job}/history",
    }


async def _measure(installation: Installation, token: str, views: dict[str, str]) -> list[PageTime]:
    transport = httpx2.ASGITransport(app=create_app(installation))
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
    found = []
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers
    ) as client:
        for view, path in views.items():
            times = []
            for _ in range(ROUNDS + 2):
                began = time.perf_counter()
                answer = await client.get(path, follow_redirects=True)
                times.append((time.perf_counter() - began) * 1000)
                answer.raise_for_status()
            found.append(PageTime(view, times[2:]))  # the first ones compile templates
    return found


def _fill(installation: Installation, count: int, events: int) -> str:
    """Writes the jobs; the id of the long one, which is the newest."""
    first = submit(installation, SubmitRequest("Begin."), OWNER).job.id
    chance = random.Random(11)
    now = time.time()
    with installation.db.write() as conn:
        model = dict(conn.execute(sa.select(jobs).where(jobs.c.id == first)).one()._mapping)
        for start in range(0, count, 5_000):
            rows = [_row(model, chance, now, count - start - n) for n in range(min(5_000, count - start))]
            conn.execute(sa.insert(jobs), rows)
    long_job = submit(installation, SubmitRequest("A long way."), OWNER).job.id
    with installation.db.write() as conn:
        conn.execute(sa.insert(job_events), list(_events(long_job, now, events)))
        conn.execute(sa.insert(messages), list(_messages(long_job, now, events)))
        counters = {"event_seq": events + 1, "total_messages": events, "steps": events // 2}
        conn.execute(sa.update(jobs).where(jobs.c.id == long_job).values(counters))
        conn.exec_driver_sql("ANALYZE")
    return long_job


def _row(model: dict[str, Any], chance: random.Random, now: float, age: int) -> dict[str, Any]:
    state = chance.choice(STATES)
    ended = state in ("succeeded", "failed", "cancelled")
    at = now - 60.0 * age
    return model | {
        "id": _id(at, chance),
        "title": " ".join(chance.choices(WORDS[:-1] if chance.random() < 0.999 else WORDS, k=8)),
        "state": state,
        "reason": {"waiting_human": "question", "failed": "model_error", "paused": "paused_by_user"}.get(
            state
        ),
        "repository": f"repo-{chance.randrange(50)}",
        "created_at": at,
        "updated_at": at,
        "available_at": at,
        "completed_at": at + 30 if ended else None,
        "steps": chance.randrange(40),
        "result": " ".join(chance.choices(WORDS, k=60)) if ended else None,
    }


def _id(at: float, chance: random.Random) -> str:
    """A UUID 7 of this time."""
    time_, rest = f"{int(at * 1000):012x}", f"{chance.getrandbits(60):015x}"
    return f"{time_[:8]}-{time_[8:]}-7{rest[:3]}-8{rest[3:6]}-{rest[6:]}000"[:36]


def _events(job_id: str, now: float, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        told = {"job_id": job_id, "seq": number + 2, "kind": "claim", "at": now + number, "actor": "worker"}
        yield told | {"from_state": "queued", "to_state": "running"}


def _messages(job_id: str, now: float, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        told = {"job_id": job_id, "seq": number + 1, "visit": 1, "role": "assistant", "kind": "assistant"}
        yield (
            told
            | {"run_id": "bench"}
            | {"content": "One more step is done. " * 8, "created_at": now + number}
        )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sostenuto-pages-") as folder:
        for found in page_times(Path(folder), url=sys.argv[1] if len(sys.argv) > 1 else ""):
            print(
                f"{found.view:40} {found.median:7.1f} ms   {min(found.times):.1f} to {max(found.times):.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
