"""Events arrive once, in order, to the end: over cut connections, and over a server that is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from jobs.api.tokens import create_token, revoke
from sostenuto import ConnectionFailed, Event, NotFound, Sostenuto, Unauthorized
from storage.engine import Database
from storage.jobs import list_events
from storage.records import NewEvent, RunRef
from storage.transcript import list_messages
from tests import factories
from tests.client.conftest import Served


def step(db: Database, run: RunRef, text: str) -> None:
    factories.commit(db, run, factories.said(text), events=[NewEvent("step", "agent")])


def end(db: Database, run: RunRef) -> None:
    done = factories.move("succeeded", "succeed")
    factories.commit(db, run, factories.said("Done."), move=done, values={"result": "done"})


def check_whole(db: Database, job_id: str, told: list[Event]) -> None:
    """Everything that is stored was told once, each sequence in its order, and the end last.

    But for what became of the job's final summary, which comes when the job has ended, and may come after it was told.
    """
    assert [event.kind for event in told].count("end") == 1
    assert told[-1].data == {"state": "succeeded"}
    history = [event.data["seq"] for event in told if event.kind == "history"]
    stored = list_events(db, job_id)
    assert history == [item.seq for item in stored[: len(history)]]
    assert all(item.kind == "summary_done" for item in stored[len(history) :])
    messages = [event.data["seq"] for event in told if event.kind == "message"]
    assert messages == [item.seq for item in list_messages(db, job_id)]


def test_a_job_is_followed_while_it_works(served: Served) -> None:
    run = factories.running_job(served.db)
    step(served.db, run, "first\n\ndata: x")
    stream = served.client().events(run.job_id)
    told = [next(stream) for _ in range(3)]
    step(served.db, run, "second")
    told.append(next(stream))
    end(served.db, run)
    told.extend(stream)
    check_whole(served.db, run.job_id, told)
    messages = [event.message for event in told if event.message]
    assert [message.content for message in messages] == ["first\n\ndata: x", "second", "Done."]
    changes = [event.change for event in told if event.change]
    assert changes[-1].to_state == "succeeded"


def test_cut_anywhere_nothing_is_lost_and_nothing_comes_twice(served: Served) -> None:
    run = factories.running_job(served.db)
    proxy = served.proxy()
    client = served.client(url=proxy.url)
    chance = random.Random(served.kind)
    proxy.cuts.extend(chance.choice([0, 300, 700, 1500, 2500, 4000]) for _ in range(12))
    steps = 40

    def work() -> None:
        for number in range(steps):
            step(served.db, run, f"step {number} " + "x" * chance.randrange(300))
        end(served.db, run)

    worker = threading.Thread(target=work)
    worker.start()
    told = list(client.events(run.job_id))
    worker.join()
    check_whole(served.db, run.job_id, told)
    assert proxy.connections > 2


def test_it_goes_on_after_an_event_and_may_be_left(served: Served) -> None:
    run = factories.running_job(served.db)
    for number in range(4):
        step(served.db, run, f"{number}")
    end(served.db, run)
    client = served.client()
    whole = list(client.events(run.job_id))
    for event in whole[:-1]:
        assert list(client.events(run.job_id, after=event.id)) == whole[whole.index(event) + 1 :]
    left: Iterator[Event] = client.events(run.job_id)
    assert next(left) == whole[0]
    del left
    assert client.job(run.job_id).succeeded


def test_a_stream_without_hope_is_an_error(served: Served) -> None:
    run = factories.running_job(served.db)
    token, row = create_token(served.db, "local", ["jobs:read"], None)
    stream = served.client(token=token).events(run.job_id)
    assert next(stream).kind == "history"
    revoke(served.db, row.id)
    with pytest.raises(Unauthorized):
        next(stream)
    with pytest.raises(NotFound):
        next(served.client().events("no-such-job"))
    proxy = served.proxy()
    client: Sostenuto = served.client(url=proxy.url, retries=2)
    proxy.cuts.extend([0] * 9)
    with pytest.raises(ConnectionFailed):
        next(client.events(run.job_id))
    assert proxy.connections == 3
