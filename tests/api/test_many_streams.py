"""Hundreds of event streams of one server process: each tells everything once, and together they cost little."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.api.tokens import create_token
from sostenuto import AsyncSostenuto, Event
from storage.engine import Database
from storage.jobs import list_events
from storage.records import NewEvent, RunRef
from storage.transcript import list_messages
from tests import factories
from tests.api.counting_server import BYTES, read_count

CLIENTS = 200
ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """The process, and what it costs."""

    db: Database
    url: str
    token: str
    pid: int
    counter: Path

    def client(self) -> AsyncSostenuto:
        return AsyncSostenuto(self.url, self.token, timeout=120)

    def statements(self) -> int:
        return read_count(self.counter)

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


@pytest.fixture
def server(migrated_url: str, data_dir: Path) -> Iterator[Server]:
    counter = data_dir / "count"
    counter.write_bytes(bytes(BYTES))
    env = {**os.environ, "SOSTENUTO_DATABASE_URL": migrated_url, "SOSTENUTO_DATA_DIR": str(data_dir)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.api.counting_server", str(counter)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    db = Database(migrated_url)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        yield Server(db, url, create_token(db, "local", ["jobs:read"], None)[0], process.pid, counter)
    finally:
        process.kill()
        process.communicate()
        db.close()


def _step(db: Database, run: RunRef, text: str) -> None:
    factories.commit(db, run, factories.said(text), events=[NewEvent("step", "agent")])


def _end(db: Database, run: RunRef) -> None:
    done = factories.move("succeeded", "succeed")
    factories.commit(db, run, factories.said("Done."), move=done, values={"result": "done"})


def _stored(db: Database, job_id: str) -> dict[str, list[int]]:
    return {
        "history": [item.seq for item in list_events(db, job_id)],
        "message": [item.seq for item in list_messages(db, job_id)],
        "end": [0],
    }


def _told(events: list[Event]) -> dict[str, list[int]]:
    told: dict[str, list[int]] = {"history": [], "message": [], "end": []}
    for event in events:
        told[event.kind].append(event.data.get("seq", 0))
    return told


async def _follow(
    client: AsyncSostenuto, job_id: str, cuts: list[int], seen: asyncio.Event | None
) -> list[Event]:
    """The whole job, leaving and coming back after so many events each time; `seen` is set by the first one."""
    told: list[Event] = []
    for cut in [*cuts, None]:
        stream = client.events(job_id, after=told[-1].id if told else None)
        async for event in stream:
            told.append(event)
            if seen is not None:
                seen.set()
            if cut is not None and len(told) >= cut:
                break
        await stream.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator
        if told[-1].kind == "end":
            return told
    return told


def test_each_of_many_sees_everything_once(server: Server) -> None:
    """From the start, late, and coming back at random places, while the job works as fast as it can."""
    run = factories.running_job(server.db)
    steps = 50
    chance = random.Random(7)
    half = threading.Event()

    def work() -> None:
        for number in range(steps):
            _step(server.db, run, f"step {number} " + "x" * chance.randrange(2000))
            if number == steps // 2:
                half.set()
        _end(server.db, run)

    async def watch() -> list[list[Event]]:
        seen = asyncio.Event()
        async with server.client() as client:

            async def one(number: int) -> list[Event]:
                if number % 4 == 3:
                    await asyncio.to_thread(half.wait, 60)
                cuts = sorted(chance.sample(range(1, 2 * steps), number % 3))
                return await _follow(client, run.job_id, cuts, seen)

            watching = [asyncio.create_task(one(number)) for number in range(CLIENTS)]
            await seen.wait()
            worker = threading.Thread(target=work)
            worker.start()
            told = await asyncio.gather(*watching)
            worker.join()
            return told

    told = asyncio.run(watch())
    stored = _stored(server.db, run.job_id)
    assert len(stored["message"]) == steps + 1
    assert [number for number, events in enumerate(told) if _told(events) != stored] == []
    assert all(events[-1].kind == "end" for events in told)


def _statements_while_followed(server: Server, clients: int, steps: int) -> int:
    """What `steps` steps cost in statements, each made when every client has seen the one before."""
    run = factories.running_job(server.db)

    async def watch() -> int:
        async with server.client() as client:
            streams = [client.events(run.job_id) for _ in range(clients)]
            await asyncio.gather(*(anext(stream) for stream in streams))
            before = server.statements()
            for number in range(steps):
                await asyncio.to_thread(_step, server.db, run, f"{number}")
                for _ in ("message", "history"):
                    await asyncio.gather(*(anext(stream) for stream in streams))
            after = server.statements()
            await asyncio.gather(*(stream.aclose() for stream in streams))  # type: ignore[attr-defined]
            return after - before

    return asyncio.run(watch())


def test_statements_do_not_grow_with_the_streams(server: Server) -> None:
    steps = 6
    alone = _statements_while_followed(server, 1, steps)
    together = _statements_while_followed(server, CLIENTS, steps)
    # The poller asks while rounds of many clients take their time; reading apart would be two for each of them.
    assert alone >= 2 * steps
    assert together < 5 * alone < 2 * CLIENTS * steps


def test_readers_that_stand_still_cost_next_to_nothing(server: Server) -> None:
    """Sixty that never read, of a transcript of 20 MB: held back whole it would be 1.2 GB."""
    run = factories.running_job(server.db)
    for _ in range(10):
        factories.commit(server.db, run, *(factories.said("x" * 100_000) for _ in range(20)))
    _end(server.db, run)
    stored = _stored(server.db, run.job_id)

    async def read_all() -> list[Event]:
        async with server.client() as client:
            return [event async for event in client.events(run.job_id)]

    assert _told(asyncio.run(read_all())) == stored
    before = server.memory()
    with ExitStack() as opened:
        still = [opened.enter_context(_asking(server, run.job_id)) for _ in range(60)]
        for connection in still:
            assert connection.recv(1, socket.MSG_PEEK)
        assert _told(asyncio.run(read_all())) == stored
        grown = server.memory() - before
        assert grown < 60_000_000


def _asking(server: Server, job_id: str) -> socket.socket:
    host = urlsplit(server.url).netloc
    connection = socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=60)
    connection.sendall(
        f"GET /api/jobs/{job_id}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    )
    return connection
