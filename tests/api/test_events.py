"""The stream of a job's events: nothing lost, nothing twice, wherever it is cut; across processes and restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from jobs.api import chunks, following
from jobs.api.tokens import create_token, revoke
from storage import live
from storage.models import TERMINAL_STATES
from storage.records import NewEvent, RunRef
from storage.runs import read_wishes
from tests import factories
from tests.api.conftest import Api, Client, problem, serving
from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Sent:
    """One event of a stream."""

    kind: str
    id: str
    data: dict[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        return self.kind, self.data.get("seq", 0)


@contextmanager
def streaming(client: Client, job_id: str, after: str | None = None) -> Iterator[Iterator[Sent]]:
    headers = {} if after is None else {"Last-Event-ID": after}
    with client.stream("GET", f"/api/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parsed(answer.iter_lines())


def test_who_asks_for_it_is_told_what_is_being_written(api: Api) -> None:
    """As it grows, and that it is over; others are not told, and make no worker tell."""
    run = factories.running_job(api.db)
    with (
        api.client().stream("GET", f"/api/jobs/{run.job_id}/events") as plain,
        api.client().stream("GET", f"/api/jobs/{run.job_id}/events", params={"live": "true"}) as answer,
    ):
        stream = _parsed(answer.iter_lines())
        assert next(stream).kind == "history"
        wait_until(
            lambda: read_wishes(api.db, [run.run_id])[run.run_id].watched,
            reason="the worker hears of the watcher",
        )
        for text in ("Hel", "Hello"):
            live.tell_live_if_run_owns(api.db, run, 1, {"text": text})
            told = next(stream)
            assert (told.kind, told.id, told.data) == ("live", "1-0", {"seq": 1, "text": text})
        _end(api, run)
        kinds = [sent.kind for sent in stream]
        assert kinds == ["message", "history", "live", "end"]
        assert [sent.kind for sent in _parsed(plain.iter_lines())] == ["history", "message", "history", "end"]


def _parsed(lines: Iterator[str]) -> Iterator[Sent]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Sent(fields["event"], fields["id"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}  # a heartbeat


def _step(api: Api, run: RunRef, text: str) -> None:
    factories.commit(api.db, run, factories.said(text), events=[NewEvent("step", "agent")])


def _end(api: Api, run: RunRef) -> None:
    done = factories.move("succeeded", "succeed")
    factories.commit(api.db, run, factories.said("Done."), move=done, values={"result": "done"})


def _everything(api: Api, job_id: str) -> set[tuple[str, int]]:
    from storage.jobs import list_events
    from storage.transcript import list_messages

    history = {("history", event.seq) for event in list_events(api.db, job_id)}
    return history | {("message", message.seq) for message in list_messages(api.db, job_id)}


def test_a_stream_tells_all_and_ends_with_the_job(api: Api) -> None:
    run = factories.running_job(api.db)
    _step(api, run, "first\n\nevent: end\ndata: {}\n\n")
    with streaming(api.client(), run.job_id) as stream:
        before = [next(stream) for _ in range(3)]
        _step(api, run, "second")
        live = [next(stream) for _ in range(2)]
        _end(api, run)
        rest = list(stream)
    assert [sent.kind for sent in before] == ["history", "message", "history"]
    assert before[1].data["content"] == "first\n\nevent: end\ndata: {}\n\n"
    assert [sent.data.get("content") for sent in live] == ["second", None]
    assert (rest[-1].kind, rest[-1].data) == ("end", {"state": "succeeded"})
    told = [sent.key for sent in [*before, *live, *rest[:-1]]]
    assert len(told) == len(set(told))
    assert set(told) == _everything(api, run.job_id)


def test_wherever_it_was_cut_it_goes_on_without_loss_or_doubles(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "BATCH", 3)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 700)
    run = factories.running_job(api.db)
    for number in range(5):
        _step(api, run, f"step {number}")
    _end(api, run)
    client = api.client()
    with streaming(client, run.job_id) as stream:
        whole = list(stream)
    assert {sent.key for sent in whole[:-1]} == _everything(api, run.job_id)
    for cut in range(len(whole)):
        with streaming(client, run.job_id, after=whole[cut].id) as stream:
            rest = list(stream)
        assert rest == (whole[cut + 1 :] or whole[-1:])


def test_a_clock_that_was_set_back_loses_nothing(api: Api) -> None:
    run = factories.running_job(api.db)
    for number in range(4):
        _step(api, run, f"step {number}")
    from sqlalchemy import update

    from storage.models import messages

    with api.db.write() as conn:
        conn.execute(update(messages).values(created_at=5.0 - messages.c.seq))
    _end(api, run)
    client = api.client()
    with streaming(client, run.job_id) as stream:
        whole = list(stream)
    numbers = [sent.data["seq"] for sent in whole if sent.kind == "message"]
    assert numbers == sorted(numbers)
    for sent in whole[:-1]:
        with streaming(client, run.job_id, after=sent.id) as stream:
            assert list(stream) == whole[whole.index(sent) + 1 :]


def test_another_process_goes_on_where_one_stopped_while_the_job_works(api: Api) -> None:
    """Each event is read from another server than the one before, all while commits come in."""
    run = factories.running_job(api.db)
    steps = 30

    def work() -> None:
        for number in range(steps):
            _step(api, run, f"step {number}")
        _end(api, run)

    worker = threading.Thread(target=work)
    told: list[Sent] = []
    for other_url in serving(api.installation):
        clients = [api.client(), api.client(base_url=other_url)]
        worker.start()
        place: str | None = None
        while not told or told[-1].kind != "end":
            with streaming(clients[len(told) % 2], run.job_id, after=place) as stream:
                for _ in range(7):
                    told.append(next(stream))
                    if told[-1].kind == "end":
                        break
            place = told[-1].id
        worker.join()
        for client in clients:
            client.close()
    keys = [sent.key for sent in told[:-1]]
    assert len(keys) == len(set(keys))
    assert set(keys) == _everything(api, run.job_id)
    assert len([key for key in keys if key[0] == "message"]) == steps + 1


def test_several_streams_of_a_job_tell_the_same(api: Api) -> None:
    run = factories.running_job(api.db)
    told: list[list[Sent]] = [[], [], []]
    ready = threading.Barrier(4)

    def listen(mine: list[Sent], client: Client) -> None:
        with streaming(client, run.job_id) as stream:
            mine.append(next(stream))
            ready.wait(60)
            mine.extend(stream)

    threads = [threading.Thread(target=listen, args=(mine, api.client())) for mine in told]
    for thread in threads:
        thread.start()
    ready.wait(60)
    for number in range(3):
        _step(api, run, f"step {number}")
    _end(api, run)
    for thread in threads:
        thread.join()
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == len(_everything(api, run.job_id)) + 1


def test_a_revoked_token_ends_its_streams_and_no_others(api: Api) -> None:
    run = factories.running_job(api.db)
    token, row = create_token(api.db, "local", ["jobs:read"], None)
    with streaming(api.client(), run.job_id) as other, streaming(api.bearer(token), run.job_id) as stream:
        assert (next(stream).kind, next(other).kind) == ("history", "history")
        revoke(api.db, row.id)
        assert list(stream) == []
        _end(api, run)
        assert [sent.kind for sent in other] == ["message", "history", "end"]


def test_a_place_that_is_none_is_refused(api: Api) -> None:
    job_id = factories.make_job(api.db)
    for wrong in ("x", "1", "1-2-3", "-1-2", "1-9999999999"):
        answer = api.client().get(f"/api/jobs/{job_id}/events", headers={"Last-Event-ID": wrong})
        problem(answer, 422, "InvalidRequest")


def test_every_end_ends_the_stream(api: Api) -> None:
    client = api.client()
    for state in TERMINAL_STATES:
        with streaming(client, factories.make_job(api.db, state)) as stream:
            assert [sent.kind for sent in stream] == ["history", "end"]


def test_a_quiet_stream_has_heartbeats(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_SECONDS", 0.05)
    job_id = factories.make_job(api.db)
    with api.client().stream("GET", f"/api/jobs/{job_id}/events") as answer:
        comments = (line for line in answer.iter_lines() if line.startswith(":"))
        assert next(comments)
        assert next(comments)
