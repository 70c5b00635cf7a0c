"""A comment is consumed exactly once, whenever it arrives, with its author and time, in the right place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.agent.stage import COMPLETE, Line, Stage, call, calls, go
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure, Reply

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d"


def shown(stage: Stage, text: str) -> int:
    """How often the last request shows the text."""
    return str(stage.endpoint.requests[-1].messages).count(text)


def test_before_the_start_it_is_in_the_head(stage: Stage) -> None:
    stage.tell(calls(call("Act")), COMPLETE)
    job_id = stage.submit()
    stage.comment(job_id, "use blue", author="bob")
    stage.run()
    content = stage.endpoint.requests[0].messages[1]["content"]
    assert re.search(rf"## Comments\n\[1\] bob, {STAMP}: use blue\n\n## Files", content)
    assert shown(stage, "use blue") == 1
    assert stage.gaps(job_id) == []
    assert stage.job(job_id).unread_comments == 0


def during(stage: Stage, when: str) -> str:
    """A job of four steps to which someone comments at `when`."""
    stage.tell(
        calls(call("Act", n=1)),
        calls(call("Act", n=2), call("Again", n=3)),
        calls(call("Act", n=4)),
        COMPLETE,
    )
    job_id = stage.submit()

    def say(*_: Any) -> None:
        stage.comment(job_id, "use blue", author="bob")

    if when == "during a tool":
        stage.acts[0].effect = lambda _, given: say() if given["n"] == 2 else None
        stage.run()
    elif when == "during a model call":
        gate = stage.endpoint.hold()
        with stage.running():
            gate.wait_held(1)
            say()
            gate.release()
    else:
        stage.restart(slice_steps=1)
        stage.run()
        say()
        stage.restart(slice_steps=200)
        stage.run()
    return job_id


@pytest.mark.parametrize("when", ["during a model call", "between slices", "during a tool"])
def test_while_the_agent_works_it_is_in_the_next_gap(stage: Stage, when: str) -> None:
    """Between a call and its results nothing may stand: it waits for the batch to close, and is shown once."""
    job_id = during(stage, when)
    [gap] = stage.gaps(job_id)
    assert re.fullmatch(rf"New comments:\n\[1\] bob, {STAMP}: use blue", gap)
    messages = stage.endpoint.requests[-1].messages
    [place] = [index for index, m in enumerate(messages) if m["content"] == gap]
    assert messages[place - 1]["role"] == "tool"
    assert messages[place + 1]["role"] == "assistant"
    assert shown(stage, "use blue") == 1
    job = stage.job(job_id)
    assert (job.state, job.unread_comments) == ("succeeded", 0)


def test_right_before_complete_it_is_read_first(stage: Stage) -> None:
    """A result that ignores a comment: COMPLETE is refused, the comment shown next, then COMPLETE is accepted."""
    ids: list[str] = []

    def finish(_request: ChatRequest) -> Answer:
        stage.comment(ids[0], "one more thing")
        return go("COMPLETE", "too early")

    stage.tell(finish, go("COMPLETE", "with the thing"))
    ids.append(stage.submit())
    stage.run()
    [job_id] = ids
    assert stage.results(job_id)[0].startswith("Not accepted: there are unread comments.")
    assert [m["role"] for m in stage.endpoint.requests[1].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert stage.endpoint.requests[1].messages[-1]["content"].startswith("New comments:\n[1] ann")
    job = stage.job(job_id)
    assert (job.state, job.result) == ("succeeded", "with the thing")
    assert [e["to"] for e in stage.events(job_id, "transition")] == ["COMPLETE"]


def test_during_a_reply_of_plain_text_it_joins_the_nudge(stage: Stage) -> None:
    """Two user messages in a row are refused by many servers: one gap holds both."""
    ids: list[str] = []

    def chat(_request: ChatRequest) -> Answer:
        stage.comment(ids[0], "hurry")
        return Reply("I would rather talk.")

    stage.tell(chat, COMPLETE)
    ids.append(stage.submit())
    stage.run()
    [gap] = stage.gaps(ids[0])
    assert re.fullmatch(
        rf"New comments:\n\[1\] ann, {STAMP}: hurry\n\nYour last reply had no tool call.*", gap, re.DOTALL
    )


def test_after_a_failed_call_it_is_joined_to_the_last_user_message(stage: Stage) -> None:
    """Text that arrives after a failed call is a row of its own, joined when it is sent."""
    job_id = stage.play(calls(call("Act")), HttpFailure(500, b"down"))
    stage.comment(job_id, "first")
    stage.make_due(job_id)
    stage.tell(HttpFailure(500, b"down"))
    stage.run()
    stage.comment(job_id, "second")
    stage.make_due(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert len(stage.gaps(job_id)) == 2
    last = stage.endpoint.requests[-1].messages[-1]
    assert re.fullmatch(
        rf"New comments:\n\[1\] ann, {STAMP}: first\n\nNew comments:\n\[2\] ann, {STAMP}: second",
        last["content"],
    )
    assert stage.job(job_id).state == "succeeded"


def test_thirty_at_once_are_announced_and_can_be_read(stage: Stage) -> None:
    """What is not shown, or cut, is named by its number, and read_comments has it whole."""
    ids: list[str] = []
    long = "L" * 5000

    def busy(_request: ChatRequest) -> Answer:
        for number in range(1, 31):
            stage.comment(ids[0], f"remark {number}" if number != 25 else long)
        return calls(call("Act"))

    lines: list[Line] = [
        busy,
        calls(
            call("read_comments", first=1, last=10),
            call("read_comments", first=25),
            call("read_comments", first=77),
        ),
        COMPLETE,
    ]
    stage.restart(context_window=100_000)
    stage.tell(*lines)
    ids.append(stage.submit())
    stage.run()
    [gap] = stage.gaps(ids[0])
    assert [int(number) for number in re.findall(r"^\[(\d+)\] ann", gap, re.MULTILINE)] == list(range(11, 31))
    assert gap.endswith(
        "Not shown in full: 11 unread (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 25). Read them with read_comments."
    )
    _, ten, one, none, _ = stage.results(ids[0])
    assert re.findall(r"remark (\d+)", ten) == [str(number) for number in range(1, 11)]
    assert one.endswith(long)
    assert none == "There is no comment 77."
    assert stage.job(ids[0]).state == "succeeded"


def test_a_comment_larger_than_a_result_can_be_read_to_its_end(stage: Stage) -> None:
    """Each cut says how to read on; following it loses nothing and repeats nothing."""
    text = "".join(f"{number:05d} " for number in range(7000))
    parts: list[str] = []

    def read_on(request: ChatRequest) -> Answer:
        found = re.fullmatch(
            rf"\[1\] ann, {STAMP}: (.*?)(?: \[…cut\])?(?:\n\n\[cut here: read on with first=1, offset=(\d+)\])?",
            request.messages[-1]["content"],
            re.DOTALL,
        )
        assert found is not None, request.messages[-1]["content"][-200:]
        parts.append(found[1])
        return calls(call("read_comments", first=1, offset=int(found[2]))) if found[2] else COMPLETE

    stage.restart(context_window=30_000)
    stage.tell(calls(call("read_comments", first=1)), *[read_on] * 40)
    job_id = stage.submit()
    stage.comment(job_id, text)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(parts) > 1
    assert "".join(parts) == text


def test_more_than_fifty_are_read_in_turns(stage: Stage) -> None:
    stage.restart(context_window=100_000)
    stage.tell(calls(call("read_comments", first=1, last=60)), COMPLETE)
    job_id = stage.submit()
    for number in range(60):
        stage.comment(job_id, f"remark {number + 1}.")
    stage.run()
    told = stage.results(job_id)[0]
    assert "remark 50." in told
    assert told.endswith("[cut here: read on with first=51]")


def test_a_comment_to_a_failed_job_is_read_after_the_retry(stage: Stage) -> None:
    job_id = stage.play(HttpFailure(401, {"error": {"code": "invalid_api_key", "message": "no"}}))
    stage.comment(job_id, "try again")
    stage.retry(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert shown(stage, "try again") == 1
    assert stage.job(job_id).unread_comments == 0


def test_the_head_shows_the_thread_of_earlier_jobs_on_the_same_thing(stage: Stage) -> None:
    """Comments, questions and results of the owner's other jobs with the same key; five at most, nobody else's."""
    key = {"task_type": "github_issue", "task_identifier": "7", "repository": "a/b"}
    stage.tell(go("COMPLETE", "the first result"))
    first = stage.submit(**key)
    stage.comment(first, "an old remark", author="bob")
    stage.run()
    stage.play(COMPLETE, **key | {"task_identifier": "8"})
    stage.tell(COMPLETE)
    second = stage.submit(**key)
    for number in range(3):
        stage.comment(second, f"remark {number}")

    stage.run()

    comments = re.search(
        r"## Comments\n(.*?)\n\n##", stage.endpoint.requests[-1].messages[1]["content"], re.DOTALL
    )
    assert comments is not None
    assert [re.sub(STAMP, "TIME", line) for line in comments[1].splitlines()] == [
        f"[job {first[-8:]}] bob, TIME: an old remark",
        f"[job {first[-8:]}] agent (result), TIME: the first result",
        "[1] ann, TIME: remark 0",
        "[2] ann, TIME: remark 1",
        "[3] ann, TIME: remark 2",
    ]
