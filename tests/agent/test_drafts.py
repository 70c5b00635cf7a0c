"""A reply is told of while it is written, to watchers only; its commit, a failure and a dead worker end that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage.live import LiveReply, live_reply, watch_jobs
from storage.masking import register_secrets
from storage.models import live_replies
from tests.agent.stage import COMPLETE, Stage, call
from tests.factories import rows_of
from tests.strict_endpoint import Gate, HttpFailure, Reply
from tests.waiting import wait_until
from worker.drafts import MOST_TEXT, Draft, DraftTeller

SECRET = "sk-canary-of-drafts-0123456789"
LINES = "".join(f"line {number}\n" for number in range(10))


def look(stage: Stage) -> None:
    """What the two threads of the worker do every half second."""
    stage.look()
    DraftTeller(stage.process).look()


def told(stage: Stage, job_id: str) -> LiveReply | None:
    return live_reply(stage.doors.db, job_id)


def held(stage: Stage, text: str, chunks: int, after: int) -> tuple[str, Gate]:
    """A job whose first reply stops after so many chunks."""
    gate = stage.endpoint.hold(after_chunks=after)
    stage.tell(Reply(text, (call("Act", n=1),), chunks=chunks), COMPLETE)
    return stage.submit(), gate


def wait_for_draft(stage: Stage, text: str) -> None:
    def said() -> bool:
        draft = next((run.draft for run in stage.process.live.all()), None)
        found = draft.said() if draft is not None else None
        return found is not None and text in json.dumps(found, ensure_ascii=False)

    wait_until(said, reason=f"the worker has read {text!r}")


def test_watchers_see_it_grow_and_its_commit_ends_it(stage: Stage) -> None:
    job_id, gate = held(stage, "Hello, world", 12, 6)
    watch_jobs(stage.doors.db, [job_id], 60)
    with stage.running():
        gate.wait_held()
        wait_for_draft(stage, "Hello")
        look(stage)
        found = told(stage, job_id)
        assert found is not None
        assert found.data["text"] == "Hello"
        rows = stage.messages(job_id)
        assert found.seq == rows[-1].seq + 1
        look(stage)  # nothing is new: nothing is written
        assert told(stage, job_id) == found
        assert rows[-1].role == "user"
        gate.release()
    assert told(stage, job_id) is None
    assert rows_of(stage.doors.db, live_replies, job_id) == []
    [reply, *_] = [row for row in stage.messages(job_id) if row.role == "assistant"]
    assert reply.seq == found.seq


def test_a_job_that_nobody_watches_writes_nothing(stage: Stage) -> None:
    job_id, gate = held(stage, "Hello, world", 12, 6)
    with stage.running():
        gate.wait_held()
        wait_for_draft(stage, "Hello")
        look(stage)
        assert rows_of(stage.doors.db, live_replies, job_id) == []
        gate.release()


@pytest.mark.parametrize("dies", ["fails", "is cancelled", "stands still"])
def test_a_call_that_brings_no_reply_leaves_nothing_that_is_shown(stage: Stage, dies: str) -> None:
    """A server that breaks off; a person who cancels; a worker that is frozen past its lease and taken for dead."""
    job_id, gate = held(stage, "Hello, world", 12, 6)
    watch_jobs(stage.doors.db, [job_id], 60)
    with stage.running():
        gate.wait_held()
        wait_for_draft(stage, "Hello")
        look(stage)
        assert told(stage, job_id) is not None
        if dies == "fails":
            stage.endpoint.mind = lambda _: HttpFailure(500)
            stage.process.live.all()[0].cancel.cancel("shutdown")
        elif dies == "is cancelled":
            stage.cancel(job_id)
            look(stage)
        else:
            stage.expire()
            assert told(stage, job_id) is None
            stage.sweep()
            DraftTeller(stage.process).look()  # of the zombie
            assert told(stage, job_id) is None
            stage.look()
        gate.release()
    assert told(stage, job_id) is None
    stage.sweep()
    assert rows_of(stage.doors.db, live_replies, job_id) == []


def _said(text: str = "", thoughts: str = "", *calls: tuple[str, str]) -> dict[str, Any] | None:
    draft = Draft(1)
    assert draft.said() is None
    draft.begin(lambda: (text, thoughts, list(calls)))
    return draft.said()


def test_no_piece_of_a_secret_is_told() -> None:
    """Wherever the reply stands now: a secret that has only begun is held back with what begins it."""
    register_secrets([SECRET])
    whole = f"the key is {SECRET}, keep it"
    said = None
    for length in range(1, len(whole) + 1):
        part = whole[:length]
        said = _said(part, part, ("Write", part))
        text = json.dumps(said)
        assert not any(SECRET[:n] in text for n in range(5, len(SECRET) + 1)), text
    assert said is not None
    assert said["text"] == "the key is ***, keep it"


def test_a_long_reply_is_told_by_its_end() -> None:
    said = _said(LINES * 20_000, LINES * 5_000, ("Write", LINES * 5_000))
    assert said is not None
    assert len(json.dumps(said)) < 3 * MOST_TEXT
    assert said["text"].startswith("…line ")
    assert said["text"].endswith("line 9\n")
    assert said["characters"] == len(LINES) * 30_000
    assert _said() is None
