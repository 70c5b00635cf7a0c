"""Submitting, looking, talking, controlling; what is repeated and what must not be."""

from __future__ import annotations

import io
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.workspace import workspace_path
from sostenuto import (
    Budget,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    Job,
    NotFound,
    Sostenuto,
    TooLarge,
    Unauthorized,
    WaitTimeout,
)
from storage.comments import list_comments
from storage.models import TERMINAL_STATES
from tests import factories
from tests.client.conftest import Served


def test_a_job_is_submitted_with_everything_and_read_back(served: Served) -> None:
    client = served.client()
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    job = client.submit(
        "日本語で Do it.",
        piece="general",
        task_identifier="T-1",
        repository="demo",
        user="emmy",
        priority=3,
        available_at=later,
        budget=Budget(max_steps=5, max_cost=1.5),
        metadata={"a": [1, None]},
    )
    assert (job.state, job.priority, job.available_at, job.owner) == ("queued", 3, later, "local")
    assert job.budget == Budget(max_steps=5, max_cost=1.5)
    assert job.metadata == {"a": [1, None]}
    assert (job.ended, job.succeeded, job.needs_someone) == (False, False, False)
    assert job.created_at.tzinfo is not None
    assert job.raw["links"]["self"] == f"/api/jobs/{job.id}"
    assert client.job(job) == client.job(job.id) == job
    with pytest.raises(AttributeError):
        job.state = "succeeded"  # type: ignore[misc]  # that it cannot be is what is tested


def test_files_arrive_as_they_are(served: Served, tmp_path: Path) -> None:
    big = tmp_path / "大きい.bin"
    big.write_bytes(os.urandom(3_000_000))
    rewound = io.BytesIO(b"skipped|from here on")
    rewound.seek(8)
    read_end, write_end = os.pipe()
    threading.Thread(target=_feed, args=(write_end, b"x" * 500_000)).start()
    with open(read_end, "rb") as pipe:  # noqa: PTH123  it is a descriptor
        job = served.client().submit(
            "Read them.",
            files=[
                big,
                ("a 'quoted\" name.txt", b"quoted"),
                ("part.txt", rewound),
                ("pipe.txt", pipe),
                ("空", b""),
            ],
        )
    folder = workspace_path(served.installation.settings.data_dir, job.id) / "input"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "大きい.bin": big.read_bytes(),
        "a 'quoted\" name.txt": b"quoted",
        "part.txt": b"from here on",
        "pipe.txt": b"x" * 500_000,
        "空": b"",
    }


def _feed(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        pipe.write(content)


def test_files_that_cannot_be_sent_are_refused_before_anything_is(served: Served, tmp_path: Path) -> None:
    client = served.client()
    with pytest.raises(FileNotFoundError):
        client.submit("x", files=[tmp_path / "no"])
    with pytest.raises(ValueError, match="two files"):
        client.submit("x", files=[("a", b""), ("a", b"")])
    with pytest.raises(ValueError, match="cannot be a file's name"):
        client.submit("x", files={'a"\r\nContent-Type: x': b""})
    with pytest.raises(TypeError, match="binary"):
        client.submit("x", files={"a": io.StringIO("text")})
    with pytest.raises(ValueError, match="zone"):
        client.submit("x", available_at=datetime(2030, 1, 1))  # noqa: DTZ001  the mistake that is tested
    assert list(client.jobs()) == []


def test_an_answer_that_was_cut_never_submits_twice(served: Served, tmp_path: Path) -> None:
    proxy = served.proxy()
    client = served.client(url=proxy.url)
    file = tmp_path / "a.txt"
    file.write_bytes(b"content" * 50_000)
    stream = io.BytesIO(b"stream")
    proxy.cuts.extend([0, 40])
    job = client.submit("once", files={"a.txt": file, "b.txt": stream})
    assert proxy.connections == 3
    assert [found.id for found in client.jobs()] == [job.id]
    assert client.read(job, "input/a.txt") == file.read_bytes()
    assert client.read(job, "input/b.txt") == b"stream"


def test_a_key_of_ones_own_is_the_same_job_for_every_call(served: Served) -> None:
    client = served.client()
    first = client.submit("x", idempotency_key="k")
    assert client.submit("x", idempotency_key="k").id == first.id
    assert client.submit("x").id != client.submit("x").id


def test_what_may_have_happened_is_not_repeated(served: Served) -> None:
    job_id = factories.make_job(served.db)
    proxy = served.proxy()
    client = served.client(url=proxy.url)
    proxy.cuts.append(0)
    with pytest.raises(ConnectionFailed) as failure:
        client.comment(job_id, "once")
    assert failure.value.sent is True
    assert [remark.text for remark in client.comments(job_id)] == ["once"]
    assert len(list_comments(served.db, job_id)) == 1


def test_reading_is_repeated(served: Served) -> None:
    job_id = factories.make_job(served.db)
    proxy = served.proxy()
    client = served.client(url=proxy.url)
    proxy.cuts.extend([0, 10, 200])
    assert client.job(job_id).id == job_id
    assert proxy.connections == 4


def test_nobody_listens(served: Served, free_port: int) -> None:
    with pytest.raises(ConnectionFailed) as failure:
        served.client(url=f"http://127.0.0.1:{free_port}", retries=2).submit("x")
    assert failure.value.sent is False
    assert "sostenuto web" in str(failure.value)


def test_all_jobs_page_by_page(served: Served) -> None:
    made = factories.make_jobs(served.db, 7) + factories.make_jobs(served.db, 2, "paused")
    parent = factories.make_job(served.db, "succeeded")
    child = factories.make_job(served.db, "failed", parent_id=parent)
    client = served.client()
    assert {job.id for job in client.jobs(page_size=2)} == {*made, parent, child}
    assert {job.id for job in client.jobs(state="paused", page_size=1)} == set(made[7:])
    assert {job.state for job in client.jobs(state=["paused", "failed"])} == {"paused", "failed"}
    assert [job.id for job in client.jobs(parent=parent)] == [child]
    assert [job.id for job in client.children(parent)] == [child]


def test_talking_and_control(served: Served) -> None:
    client = served.client()
    job = client.submit("x")
    assert client.comment(job, "a remark").text == "a remark"
    assert client.pause(job).state == "paused"
    assert client.resume(job, Budget(max_steps=9)).budget.max_steps == 9
    with pytest.raises(Conflict) as refused:
        client.reply(job, "42")
    assert (refused.value.status, refused.value.code) == (409, "IllegalTransition")
    assert client.cancel(job).state == "cancelled"
    assert client.retry(job).state == "queued"
    kinds = [change.kind for change in client.history(job)]
    assert [kind for kind in kinds if kind in TERMINAL_STATES or kind in ("pause", "resume", "cancel", "retry")] == [
        "pause", "resume", "cancel", "retry",
    ]  # fmt: skip


def test_a_question_is_seen_and_answered(served: Served) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    question = {
        "question": "Which?",
        "choices": ["red", "green"],
        "until": until.timestamp(),
        "default_answer": "red",
    }
    job_id = factories.make_job(served.db, "waiting_human", pending_question=question)
    client = served.client()
    job = client.wait(job_id, timeout=30)
    assert job.needs_someone
    assert job.pending_question is not None
    assert (job.pending_question.question, job.pending_question.choices) == ("Which?", ("red", "green"))
    assert (job.pending_question.until, job.pending_question.default_answer) == (until, "red")
    assert client.reply(job, "2").text == "green"
    assert client.job(job).state == "queued"


def test_waiting_has_an_end(served: Served) -> None:
    job_id = factories.make_job(served.db)
    with pytest.raises(WaitTimeout) as late:
        served.client().wait(job_id, timeout=0.2)
    assert isinstance(late.value, TimeoutError)
    assert late.value.job.state == "queued"
    assert served.client().wait(job_id, until=lambda job: job.state == "queued").id == job_id


def test_what_the_job_did(served: Served) -> None:
    run = factories.running_job(served.db)
    for number in range(250):
        factories.commit(served.db, run, factories.said(f"{number}"))
    client = served.client()
    messages = list(client.messages(run.job_id))
    assert [message.content for message in messages] == [str(number) for number in range(250)]
    assert [message.seq for message in client.messages(run.job_id, after=248)] == [249, 250]
    assert list(client.todos(run.job_id)) == []
    assert (client.plans(run.job_id), client.lessons(run.job_id), client.checklists(run.job_id)) == (
        [],
        [],
        [],
    )
    assert list(client.tool_calls(run.job_id)) == []
    assert "general" in {piece.name for piece in client.pieces()}
    assert list(client.workers()) == []
    assert client.ready()["database"] == "ok"


def test_each_refusal_is_its_own_error(served: Served) -> None:
    client = served.client()
    job_id = factories.make_job(served.db)
    with pytest.raises(NotFound) as absent:
        client.job("no-such-job")
    assert (absent.value.status, absent.value.code) == (404, "JobNotFound")
    with pytest.raises(NotFound):
        served.client(owner="someone else").job(job_id)
    for odd in ("..", "", "a/b", "x?y=1", "%2e%2e"):
        with pytest.raises(NotFound):
            client.job(odd)
    with pytest.raises(Forbidden) as forbidden:
        served.client("jobs:read").cancel(job_id)
    assert "jobs:write" in forbidden.value.detail
    with pytest.raises(Unauthorized):
        served.client(token="sos_unknown").job(job_id)
    with pytest.raises(Invalid) as invalid:
        client.submit("x", priority=10_000)
    assert invalid.value.errors[0]["loc"] == ["body", "priority"]
    with pytest.raises(NotFound) as unknown:
        client.submit("x", piece="generall")
    assert "general" in (unknown.value.hint or "")
    with pytest.raises(TooLarge):
        client.submit("x" * 17_000_000)


def test_a_job_of_a_newer_server_is_still_read(served: Served) -> None:
    from sostenuto.records import record

    document = dict(served.client().submit("x").raw) | {"added_later": {"x": 1}, "state": "dreaming"}
    job = record(Job, document)
    assert (job.state, job.raw["added_later"], job.ended) == ("dreaming", {"x": 1}, False)


def test_both_clients_can_do_the_same(served: Served) -> None:
    from sostenuto import AsyncSostenuto

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(AsyncSostenuto) == public(Sostenuto)
    assert [
        name for name in public(Sostenuto) if not getattr(Sostenuto, name).__doc__ and name != "retries"
    ] == []
