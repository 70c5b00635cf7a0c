"""What models really answer: whatever it is, the job goes on or ends with a reason, and the next request is valid."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.agent.test_capabilities import picky, refusal
from tests.context.driving import fill, is_summary, play, small_window, summaries, summary_requests, working
from tests.strict_endpoint import Answer, Call, ChatRequest, Raw, Reply
from tests.strict_endpoint.rules import Profile
from worker.loops import STOP_AFTER, WARN_AFTER

NAMES = ["Grep_Files", "", "Read ", "read", "x" * 10_000, "Edit"]


def test_a_tool_that_is_not_there_or_not_allowed(stage: Stage) -> None:
    """A tool that does not exist, or not in this movement: told with the names of those that do; siblings run."""
    only = {"name": "only", "allowed_tools": ["Act", "Edit"], "edit": False, "default_next": "COMPLETE"}
    wrong = calls(call("Act", n=1), *(Call(name, {"n": 1}) for name in NAMES), call("Act", n=2))
    job_id = stage.play(wrong, COMPLETE, piece=stage.piece("one", only))
    first, *told, last, _ = stage.results(job_id)
    assert (first, last) == ("acted 1", "acted 2")
    assert len(told) == len(NAMES)
    for error in told:
        assert error.startswith("Error: there is no tool ")
        assert "Allowed tools: Act, " in error
        assert "Edit" not in error.partition("Allowed tools")[2]
        assert len(error) < 300
    assert stage.job(job_id).state == "succeeded"


@pytest.mark.parametrize("what", ["unknown tools", "broken arguments", "both in one reply"])
def test_calls_of_which_none_can_be_run_are_bounded(stage: Stage, what: str) -> None:
    """Always another tool that does not exist, or arguments broken in another way: no circle by its looks, and endless."""
    numbers = count()

    def wrong(_: ChatRequest) -> Answer:
        number = next(numbers)
        made = {
            "unknown tools": (Call(f"{NAMES[number % 3]}{number or ''}", {"n": number}),),
            "broken arguments": (Call("Act", f'{{"cmd": "ls {number}'),),
            "both in one reply": (Call(f"Find_{number}", {}), Call("Act", f"[{number}]")),
        }
        return Reply(calls=made[what])

    job_id = stage.play(*[wrong] * (WARN_AFTER + STOP_AFTER))
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "loop")
    assert "no call of 15 replies in a row could be run" in (job.reason_text or "")
    assert stage.acts[0].runs == []
    assert (
        len([gap for gap in stage.gaps(job_id) if "no call of 10 replies in a row could be run" in gap]) == 1
    )


def test_one_call_that_runs_ends_the_count(stage: Stage) -> None:
    """A model that gets it wrong often, and right now and then, is working."""
    numbers = count()

    def mind(_: ChatRequest) -> Answer:
        number = next(numbers)
        if number == 40:
            return COMPLETE
        return calls(call("Act", n=number)) if number % 8 == 7 else calls(call(f"Find_{number}"))

    job_id = stage.play(*[mind] * 41)
    assert stage.job(job_id).state == "succeeded"
    assert len(stage.acts[0].runs) == 5


BROKEN_WRITE = Reply(
    calls=(Call("Write", '{"path": "output/x", "content": "half of'),), finish_reason="length"
)


def test_a_broken_write_cut_at_the_output_limit_five_times(stage: Stage) -> None:
    """Never run, told "cut" each time, sent back as valid JSON, and bounded."""
    job_id = stage.play(*[BROKEN_WRITE] * 5)
    job = stage.job(job_id)
    assert (job.state, job.reason, stage.endpoint.calls()) == ("failed", "no_transition", 5)
    told = stage.results(job_id)
    assert len(told) == 5
    assert all("your reply was cut at the output limit" in result for result in told)
    assert list(stage.workspace(job_id).glob("output/*")) == []
    assert stage.endpoint.requests[-1].messages[2]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_prose_without_end(stage: Stage) -> None:
    """A model that only talks, twenty times and more: nudged a few times, then a failure of its own, no success."""
    stage.endpoint.mind = lambda request: Reply(f"I am thinking about it ({request.number}).")
    job_id = stage.submit()
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.reason, stage.endpoint.calls()) == ("failed", "no_transition", 5)
    assert len([gap for gap in stage.gaps(job_id) if "plain text does not end this movement" in gap]) == 4


ERRORS_IN_200 = {
    "choices null, code 429": (
        b'{"choices": null, "error": {"message": "slow down", "code": 429}}',
        "rate_limited",
    ),
    "choices null, code 429 as text": (
        b'{"choices": null, "error": {"message": "slow down", "code": "429"}}',
        "rate_limited",
    ),
    "choices null, code 402": (
        b'{"choices": null, "error": {"message": "no credit left", "code": 402}}',
        "quota",
    ),
    "choices null, code 400": (b'{"choices": null, "error": {"message": "bad", "code": 400}}', "model_error"),
    "an error in the choice": (
        b'{"choices": [{"error": {"message": "provider down", "code": 502}}]}',
        "model_unavailable",
    ),
    "an empty list of choices": (b'{"choices": []}', "model_unavailable"),
    "an empty list": (b"[]", "model_unavailable"),
    "null": (b"null", "model_unavailable"),
    "an empty object": (b"{}", "model_unavailable"),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", ERRORS_IN_200)
def test_an_error_with_status_200(stage: Stage, shape: str, streamed: bool) -> None:
    """Classified by the code inside: what passes is waited out, what does not fails; nothing of it is a reply."""
    body, reason = ERRORS_IN_200[shape]
    answer = (
        Raw((b"data: " + body + b"\n\n", b"data: [DONE]\n\n"))
        if streamed
        else Raw((body,), "application/json")
    )
    job_id = stage.play(calls(call("Act", n=1)), answer)
    job = stage.job(job_id)
    assert job.reason == reason
    assert job.state == ("queued" if reason in ("rate_limited", "model_unavailable") else "failed")
    assert [m.role for m in stage.messages(job_id)].count("assistant") == 1
    assert stage.endpoint.calls() == 2
    if job.state == "queued":
        stage.make_due(job_id)
    else:
        stage.retry(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(stage.acts[0].runs) == 1


THOUGHT = "the butler did it"


def test_reasoning_is_never_sent_to_a_server_that_refuses_it(stage: Stage) -> None:
    """Stored apart; in no request, those of a compaction's summariser included; its own thoughts are in no summary."""
    small_window(stage, compression={"keep_recent": 4})
    fill(stage)
    acting = working(14)

    def mind(request: ChatRequest) -> Answer:
        if is_summary(request):
            return Reply("What was done.", reasoning={"reasoning_content": THOUGHT})
        said = acting(request)
        assert isinstance(said, Reply)
        return Reply(calls=said.calls, reasoning={"reasoning_content": THOUGHT})

    job_id = play(stage, mind)
    assert stage.job(job_id).state == "succeeded"
    assert len(summary_requests(stage)) == 1
    assert all(THOUGHT not in str(request.body) for request in stage.endpoint.requests)
    assert summaries(stage, job_id) == ["What was done."]
    kept = [(m.extra or {}).get("reasoning") for m in stage.messages(job_id) if m.role == "assistant"]
    assert kept
    assert all(reasoning == {"reasoning_content": THOUGHT} for reasoning in kept)


@pytest.mark.parametrize("thought", [THOUGHT, ""], ids=["some", "empty"])
def test_reasoning_goes_back_to_a_server_that_demands_it(stage: Stage, thought: str) -> None:
    """An empty one too: refused once, worked around, remembered for the next job, and no summary call is refused."""
    small_window(stage, compression={"keep_recent": 4})
    stage.endpoint.profile = Profile(window=8000, reasoning=True)
    fill(stage)
    acting = working(14)

    def mind(request: ChatRequest) -> Answer:
        if is_summary(request):
            return Reply("What was done.")
        said = acting(request)
        assert isinstance(said, Reply)
        return Reply(calls=said.calls, reasoning={"reasoning_content": thought})

    def lacks_it(body: dict[str, Any]) -> bool:
        said = [m for m in body["messages"] if m["role"] == "assistant"]
        return any(m.get("reasoning_content") != thought for m in said)

    text = "The `reasoning_content` in the thinking mode must be passed back to the API."
    tale = picky(stage, lacks_it, refusal(text), *[mind] * 20)
    job_id = play(stage, stage.endpoint.mind)
    assert stage.job(job_id).state == "succeeded"
    assert len(tale) == 1
    assert len(summary_requests(stage)) == 1
    assert stage.endpoint.requests[-1].messages[-2]["reasoning_content"] == thought
