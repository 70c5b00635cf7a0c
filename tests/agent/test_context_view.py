"""`python -m worker.context_view` shows what the endpoint is then really sent."""

from __future__ import annotations

import pytest

from storage.errors import JobNotFound
from tests.agent.stage import COMPLETE, Stage, call, calls, go
from worker.context_view import NO_RESULT, context_of


def test_it_is_the_next_request_byte_for_byte(stage: Stage) -> None:
    """A view that is put together otherwise than the request shows what the model never saw."""
    job_id = stage.play(
        calls(call("Act", n=1), call("Nothing")),
        calls(call("Act", n=2)),
        budget={"max_steps": 2},
        files={"a.txt": b"a"},
    )
    view = context_of(stage.doors.db, job_id)
    stage.resume(job_id, max_steps=9)
    stage.tell(COMPLETE)
    stage.run()
    sent = stage.endpoint.requests[-1]
    assert [part["message"] for part in view["messages"]] == sent.messages
    assert view["tools"] == sent.body["tools"]
    assert view["tokens"] == view["tools_tokens"] + sum(part["tokens"] for part in view["messages"])
    assert [block["block"] for block in view["messages"][1]["blocks"]] == ["time", "files", "instruction"]


def test_a_parked_call_has_no_result_yet_and_unread_comments_are_counted(stage: Stage) -> None:
    job_id = stage.play(calls(call("transition", next_step="ASK", summary="Which?"), call("Act", n=1)))
    view = context_of(stage.doors.db, job_id)
    results = [part for part in view["messages"] if part["message"]["role"] == "tool"]
    assert [(part["message"]["content"], part.get("pending")) for part in results] == [
        (NO_RESULT, True),
        ("acted 1", None),
    ]
    stage.reply(job_id, "blue")
    stage.comment(job_id, "and soon")
    assert context_of(stage.doors.db, job_id)["unread_comments"] == 2


def test_a_movement_that_has_not_begun_has_no_context(stage: Stage) -> None:
    job_id = stage.submit()
    assert context_of(stage.doors.db, job_id)["messages"] == []
    with pytest.raises(JobNotFound):
        context_of(stage.doors.db, "nobody")


def test_an_ended_job_keeps_its_last_context(stage: Stage) -> None:
    job_id = stage.play(calls(call("Act", n=1)), go("COMPLETE", "fine"))
    contents = [part["message"]["content"] for part in context_of(stage.doors.db, job_id)["messages"]]
    assert contents[-1] == "Accepted. The job is complete."
