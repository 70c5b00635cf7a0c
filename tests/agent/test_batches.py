"""The calls of one reply, good and bad, and replies that are no use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.strict_endpoint import Call, Raw, Reply
from worker.cancel import Cancelled
from worker.tokens import estimate_tokens


def last_results(stage: Stage) -> list[str]:
    return [m["content"] for m in stage.endpoint.requests[-1].messages if m["role"] == "tool"]


def test_results_stand_in_call_order_with_what_each_call_said(stage: Stage) -> None:
    stage.play(calls(*(call("Act", n=n) for n in range(6))), COMPLETE)
    assert last_results(stage) == [f"acted {n}" for n in range(6)]


def test_one_budget_for_the_batch(stage: Stage) -> None:
    """Each result fits but the batch does not: contents shrink, ids stay, and the next request fits the window."""
    stage.endpoint.profile = type(stage.endpoint.profile)(window=8000)
    stage.restart(context_window=8000, max_output_tokens=1000)
    stage.acts[0].effect = lambda _context, _given: "word " * 3000
    job_id = stage.play(calls(*(call("Act", n=n) for n in range(5))), COMPLETE)
    told = last_results(stage)
    assert len(told) == 5
    assert all(result.startswith("word word") for result in told)
    row = stage.row(job_id)
    room = 8000 - 1000 - row["prompt_tokens"] + stage.endpoint.requests[-1].prompt_tokens
    assert sum(map(estimate_tokens, told)) <= room * 3 / 4
    assert stage.endpoint.overflows == []
    assert stage.job(job_id).state == "succeeded"


def test_a_batch_of_many_calls_shrinks_until_it_fits(stage: Stage) -> None:
    """A thousand tokens a call is the least only where they all fit: thirty of them are more than the window."""
    stage.endpoint.profile = type(stage.endpoint.profile)(window=8000)
    stage.restart(context_window=8000, max_output_tokens=1000)
    stage.acts[0].effect = lambda _context, _given: "word " * 3000
    job_id = stage.play(calls(*(call("Act", n=n) for n in range(12))), COMPLETE)
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    assert stage.endpoint.overflows == []
    assert min(stage.acts[0].budgets) >= 100


def test_invalid_arguments_beside_good_siblings(stage: Stage) -> None:
    """No JSON, no object, junk by the megabyte: not run, told with a short preview, and sent back as an object."""
    junk = "junk " * 40_000
    bad = ['{"n":', "[]", "null", '"1"', "", junk, '{"n": "one"}', '{"m": 1}', '{"n": NaN}']
    job_id = stage.play(
        calls(call("Act", n=1), *(Call("Act", text) for text in bad), call("Act", n=2)), COMPLETE
    )
    first, *errors, last = last_results(stage)
    assert (first, last) == ("acted 1", "acted 2")
    assert len(errors) == len(bad)
    assert all(error.startswith("Error: Act was not run: ") and len(error) < 400 for error in errors)
    assert stage.acts[0].runs == [{"n": 1}, {"n": 2}]
    stored = next(m for m in stage.messages(job_id) if m.role == "assistant").tool_calls
    assert stored is not None
    assert [made["arguments"] for made in stored[1:-1]] == bad
    wire = stage.endpoint.requests[-1].messages[2]["tool_calls"]
    assert [made["function"]["arguments"] for made in wire[1:7]] == ["{}"] * 6


def test_a_tool_that_raises_is_a_result(stage: Stage) -> None:
    """A tool's own fault never ends the run, and tells nothing of the worker's folders."""

    def broken(*_: Any) -> str:
        raise RuntimeError("cannot read /etc/secret/key")

    stage.acts[0].effect = broken
    stage.play(calls(call("Act", n=1), call("Again", n=2)), COMPLETE)
    failed, fine = last_results(stage)
    assert failed.startswith("Error: Act failed: RuntimeError: cannot read …")
    assert fine == "acted 2"


@pytest.mark.parametrize("raw", ["", "e:1", "x" * 64 + "|a"])
def test_ids_of_our_own_go_over_the_wire(stage: Stage, raw: str) -> None:
    """Doubled, empty or too long ids poison the conversation: ours are sent, the raw one is kept aside."""
    job_id = stage.play(calls(Call("Act", {"n": 1}, id=raw), Call("Again", {"n": 2}, id=raw)), COMPLETE)
    stored = next(m.tool_calls for m in stage.messages(job_id) if m.role == "assistant")
    assert stored is not None
    assert last_results(stage)[-1] == "acted 2"
    assert {made["raw_id"] for made in stored} == {raw}
    assert len({made["id"] for made in stored}) == len(stored)


def test_truncated_calls_are_never_run(stage: Stage) -> None:
    """A call cut at the output limit may look complete: the model is told, and nothing happens."""
    cut = Reply(
        calls=(call("Act", n=1), Call("Write", '{"path": "output/x", "content": "ha')), finish_reason="length"
    )
    job_id = stage.play(cut, calls(call("Act", n=2)), COMPLETE)
    assert stage.acts[0].runs == [{"n": 2}]
    assert all("your reply was cut at the output limit" in told for told in stage.results(job_id)[:2])
    assert stage.job(job_id).state == "succeeded"


def test_truncated_text_is_told_so(stage: Stage) -> None:
    """Text cut at the limit is no refusal to work: the model hears that it was cut."""
    job_id = stage.play(Reply("Let me write all of it: ", finish_reason="length"), COMPLETE)
    assert stage.gaps(job_id)[0].startswith("Your last reply was cut at the output limit")


CUT = Reply(calls=(call("Act", n=1),), finish_reason="length")
PROSE = Reply("I am done, I think.")
TOOL_LIKE = Reply('<tool_call>{"name": "transition", "arguments": {"next_step": "COMPLETE"}}</tool_call>')


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([CUT] * 5, "the last one was cut at the output limit"),
        ([PROSE] * 5, "the last one had no tool call"),
        ([TOOL_LIKE] * 5, "the last one had no tool call"),
        ([PROSE, CUT, PROSE, CUT, PROSE], "the last one had no tool call"),
        ([PROSE, calls(call("Act")), *[PROSE] * 5], "the last one had no tool call"),
    ],
)
def test_replies_that_lead_nowhere_are_bounded(stage: Stage, replies: list[Reply], told: str) -> None:
    """Prose, truncation, calls written as text, and any mixture of them: nudged, then a failure of its own."""
    job_id = stage.play(*replies)
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "no_transition")
    assert told in (job.reason_text or "")
    assert stage.endpoint.calls() == len(replies)
    assert job.steps == len(replies)


def test_a_failed_job_gets_another_chance_when_it_is_retried(stage: Stage) -> None:
    job_id = stage.play(*[PROSE] * 5)
    stage.retry(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert stage.endpoint.requests[-1].messages[-1]["role"] == "user"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(refusal="I will not do that."), "I will not do that."),
        (Reply("part of an", finish_reason="content_filter"), "part of an"),
        (Reply(refusal="nul \0 in it"), "nul"),
    ],
)
def test_a_refusal_is_an_outcome_of_its_own(stage: Stage, reply: Reply, told: str) -> None:
    """Neither a success nor an endless retry; what it cost is counted."""
    job = stage.job(stage.play(reply))
    assert (job.state, job.reason) == ("failed", "model_refused")
    assert told in (job.reason_text or "")
    assert job.tokens > 0
    assert stage.endpoint.calls() == 1


@pytest.mark.parametrize(
    "reply", [Reply(), Reply("  \n"), Reply(reasoning={"reasoning_content": "hmm"}, finish_reason="length")]
)
def test_empty_replies_are_never_sent_back_and_bounded(stage: Stage, reply: Reply) -> None:
    """Neither content nor calls: nothing of it enters the history; asked again later, not for ever."""
    stage.tell(*[reply] * 8)
    job_id = stage.submit()
    for _ in range(8):
        assert stage.run() == job_id
        stage.make_due(job_id) if stage.job(job_id).state == "queued" else None
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "model_error")
    assert "8 calls in a row failed, the last one: the reply was empty" in (job.error or "")
    assert [m.role for m in stage.messages(job_id)].count("assistant") == 0
    assert job.tokens > 0


def test_the_presence_of_calls_decides(stage: Stage) -> None:
    """The wrong finish label: calls with `stop` are calls; `tool_calls` with none is text."""
    job_id = stage.play(
        Reply(calls=(call("Act", n=1),), finish_reason="stop"),
        Reply("text", finish_reason="tool_calls"),
        COMPLETE,
    )
    assert stage.acts[0].runs == [{"n": 1}]
    assert len(stage.gaps(job_id)) == 1


def test_two_calls_under_one_index_are_two_calls(stage: Stage) -> None:
    """Stream deltas with a reused index: a new id starts a new call."""
    head = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"%s","function":{"name":"Act","arguments":"{\\"n\\":%d}"}}]}}]}\n\n'
    body = head % (b"a", 1) + head % (b"b", 2) + b"data: [DONE]\n\n"
    stage.play(Raw((body,)), COMPLETE)
    assert stage.acts[0].runs == [{"n": 1}, {"n": 2}]


def test_usage_that_is_missing_is_estimated(stage: Stage) -> None:
    """Missing usage is unknown, not zero."""
    job_id = stage.play(Reply(calls=(call("Act"),), usage=False), Reply(calls=COMPLETE.calls, usage=False))
    row = stage.row(job_id)
    assert row["prompt_tokens"] > 2 * 100
    assert row["completion_tokens"] > 0
    assert row["context_tokens"] > 100


def test_a_cancel_in_the_same_instant_as_a_result(stage: Stage) -> None:
    """One result per call: a tool that is cancelled leaves none, and the retry answers it once."""

    def cancelled(context: Any, _given: Any) -> str:
        stage.cancel(job_id)
        stage.look()
        raise Cancelled(context.cancel.reason)

    stage.acts[0].effect = cancelled
    stage.tell(calls(call("Act", n=1), call("Act", n=2)))
    job_id = stage.submit()
    stage.run()
    assert stage.job(job_id).state == "cancelled"
    assert stage.results(job_id) == []
    stage.acts[0].effect = None
    stage.retry(job_id)
    stage.tell(COMPLETE)
    stage.run()
    assert all(told.startswith("Interrupted: ") for told in last_results(stage))
    assert len(stage.acts[0].runs) == 1


def test_a_reply_that_ends_the_movement_runs_its_siblings_first(stage: Stage) -> None:
    job_id = stage.play(calls(call("transition", next_step="COMPLETE", summary="done"), call("Act", n=1)))
    assert stage.acts[0].runs == [{"n": 1}]
    assert stage.job(job_id).result == "done"
