"""What happens as a context fills up: warned, asked to wrap up, forced on; each once, and never a success by force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.states import State
from tests.agent.stage import COMPLETE, OWNER, Stage, call, calls
from tests.context.driving import (
    LEAN,
    WINDOW,
    agent_requests,
    drive,
    fill,
    full,
    is_summary,
    lean,
    play,
    roomy,
    small_window,
    summaries,
    summary_requests,
    working,
)
from tests.strict_endpoint import Answer, Call, ChatRequest, HttpFailure, Raw, Reply
from worker.context_run import run_context

OFF = {"enabled": False}


def endless(request: ChatRequest) -> Answer:
    """Never ends by itself."""
    return Reply("summary") if is_summary(request) else calls(call("Act", n=request.replies))


def asked(stage: Stage, job_id: str) -> list[str]:
    return [gap for gap in stage.gaps(job_id) if "cannot be made shorter" in gap]


Counting = Callable[[int], bool | dict[str, Any]]
USAGES: dict[str, Counting] = {
    "counted": lambda _: True,
    "missing": lambda _: False,
    "zero": lambda _: {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "null": lambda _: {"prompt_tokens": None, "completion_tokens": 5},
    "shrinking": lambda tokens: {"prompt_tokens": min(tokens, 5_000 - tokens), "completion_tokens": 5},
    "cached left out": lambda tokens: {
        "prompt_tokens": tokens - tokens * 9 // 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": tokens * 9 // 10},
    },
    "absurd": lambda tokens: {"prompt_tokens": tokens * 1000, "completion_tokens": 5},
}


@pytest.mark.parametrize("usage", USAGES)
def test_without_compaction_it_is_warned_asked_and_forced_once_each(stage: Stage, usage: str) -> None:
    """Usage that is missing or false is unknown, not zero: estimates count from the first turn, 70, 85, 95 fire once each."""
    small_window(stage, compression=OFF)
    fill(stage, 250)

    def mind(request: ChatRequest) -> Answer:
        reply = endless(request)
        assert isinstance(reply, Reply)
        return Reply(calls=reply.calls, usage=USAGES[usage](request.prompt_tokens))

    job_id = play(stage, mind)

    assert len(stage.events(job_id, "context_warning")) == 1
    assert len(asked(stage, job_id)) == 1
    view = stage.job(job_id)
    assert (view.state, view.reason) == ("aborted", "context_exhausted")
    assert not stage.endpoint.overflows
    [event] = stage.events(job_id, "transition")
    assert event["forced"] is True
    assert stage.row(job_id)["final_token_count"] >= 7500 * 0.95


def test_forced_to_complete_is_no_success(stage: Stage) -> None:
    small_window(stage, compression=OFF)
    fill(stage, 250)
    lean(stage, default_next="COMPLETE")

    job_id = play(stage, endless)

    view = stage.job(job_id)
    assert (view.state, view.reason, view.result) == ("failed", "context_exhausted", None)
    assert "compaction is off or did not help" in (view.error or "")


def test_forced_on_to_the_next_movement(stage: Stage) -> None:
    """The movement `default_next` begins, with an empty context and the last words of the one before."""
    small_window(stage, compression=OFF)
    fill(stage, 250)
    rules = [{"condition": "done", "next": "finish"}]
    piece = stage.piece("two",
        {"name": "work", "allowed_tools": ["Act"], "rules": rules, "default_next": "finish"},
        {"name": "finish", "allowed_tools": ["Act"], "rules": [{"condition": "done", "next": "COMPLETE"}]},
    )  # fmt: skip

    def mind(request: ChatRequest) -> Answer:
        return COMPLETE if "Movement: finish" in request.messages[0]["content"] else endless(request)

    job_id = play(stage, mind, piece=piece)

    assert stage.job(job_id).state == "succeeded"
    forced = next(event for event in stage.events(job_id, "transition") if event["to"] == "finish")
    assert forced["forced"] is True
    assert "ran out of context" in str(stage.endpoint.requests[-1].messages[1]["content"])


def test_thresholds_are_rearmed_by_a_compaction(stage: Stage) -> None:
    roomy(stage)

    job_id = play(stage, working(45))

    rounds = len(summaries(stage, job_id))
    assert rounds >= 2
    assert rounds <= len(stage.events(job_id, "context_warning")) <= rounds + 1
    assert asked(stage, job_id) == []


def test_state_after_a_crash_at_any_size(stage: Stage) -> None:
    """A restart between any two slices changes nothing of what fires: it is all on the job's row."""
    small_window(stage, compression=OFF, slice_steps=1)
    fill(stage, 250)
    stage.endpoint.mind = endless
    job_id = stage.submit(piece=LEAN)
    while stage.job(job_id).state == "queued":
        stage.restart()
        stage.run()

    assert len(stage.events(job_id, "context_warning")) == 1
    assert len(asked(stage, job_id)) == 1
    assert stage.job(job_id).state == "aborted"


def test_system_prompt_and_schemas_alone_above_the_trigger(stage: Stage) -> None:
    """No endless compaction: one clear error that says what to change, without a call."""
    small_window(stage, 2000, compression={"token_threshold": 1000})
    lean(stage, allowed_tools=["*"])

    job_id = play(stage, endless)

    view = stage.job(job_id)
    assert (view.state, view.reason) == ("failed", "context_exhausted")
    assert "allow fewer tools" in (view.error or "")
    assert stage.endpoint.requests == []


@pytest.mark.parametrize(("share", "result"), [(0.6, 300), (0.7, 60), (0.74, 900)])
def test_a_fixed_part_that_leaves_little_to_compact(stage: Stage, share: float, result: int) -> None:
    """Below the trigger, but with too little room for a summary that frees any: no endless compaction, the same advice."""
    small_window(stage)
    lean(stage, persona="word " * int(share * 7500 - 700))
    fill(stage, result)

    job_id = play(stage, endless, instruction="Go.")

    view = stage.job(job_id)
    assert (view.state, view.reason) == ("aborted", "context_exhausted")
    assert "which no compaction frees: allow fewer tools in the movement" in (view.error or "")
    assert summary_requests(stage) == []


def test_a_large_fixed_part_that_leaves_enough_to_compact(stage: Stage) -> None:
    """More than half of the window is fixed: compactions come more often, each frees enough for some steps."""
    small_window(stage)
    lean(stage, persona="word " * int(0.55 * 7500 - 700))
    fill(stage, 300)

    job_id = play(stage, working(30), instruction="Go.")

    assert stage.job(job_id).state == "succeeded"
    assert 1 <= len(summaries(stage, job_id)) <= 10
    assert stage.events(job_id, "compaction_discarded") == []


OVERFLOWS: dict[str, Answer] = {
    "a code only": HttpFailure(400, {"error": {"message": "no", "code": "context_length_exceeded"}}),
    "413": HttpFailure(413, b"too large"),
    "500 with words": HttpFailure(500, {"error": {"message": "9001 tokens will not fit in 8192"}}),
    "an error in a stream of status 200": Raw(
        (
            b'data: {"choices": [{"index": 0, "delta": {"content": "Let me"}}]}\n\n',
            b'data: {"error": {"message": "9001 tokens will not fit in 8192", "code": 500}}\n\n',
        )
    ),
}


@pytest.mark.parametrize("shape", OVERFLOWS)
def test_an_overflow_is_compacted_and_asked_again_once(stage: Stage, shape: str) -> None:
    """Recognised in every shape; compacted; asked again; error texts never enter the history."""
    small_window(stage, 9000, compression={"keep_recent": 4})
    fill(stage, 250)
    acting = working(14)
    failed = False

    def mind(request: ChatRequest) -> Answer:
        nonlocal failed
        if not is_summary(request) and request.replies == 12 and not failed:
            failed = True
            return OVERFLOWS[shape]
        return acting(request)

    job_id = play(stage, mind)

    assert stage.job(job_id).state == "succeeded"
    assert failed
    assert len(summaries(stage, job_id)) == 1
    assert not any(
        "fit" in (m.content or "") or "too large" in (m.content or "") for m in stage.messages(job_id)
    )


def test_a_second_overflow_is_a_clear_failure(stage: Stage) -> None:
    small_window(stage, 9000, compression={"keep_recent": 4})
    fill(stage, 250)
    acting = working(50)

    def mind(request: ChatRequest) -> Answer:
        if is_summary(request):
            return Reply("summary")
        late = len(agent_requests(stage)) > 12
        return OVERFLOWS["a code only"] if late else acting(request)

    job_id = play(stage, mind)

    view = stage.job(job_id)
    assert (view.state, view.reason) == ("failed", "context_exhausted")
    assert "also after its context was made smaller" in (view.error or "")
    assert len(summary_requests(stage)) == 1


NO_OVERFLOWS = {
    "tokens per minute": (429, "Request too large: tokens per minute", "queued", "rate_limited"),
    "a long id": (
        400,
        "Invalid tool_calls[0].id: string too long. Maximum length 40.",
        "failed",
        "model_error",
    ),
}


@pytest.mark.parametrize("shape", NO_OVERFLOWS)
def test_what_is_no_overflow_is_not_compacted(stage: Stage, shape: str) -> None:
    """A limit of tokens per minute, an id that is too long: their words sound alike."""
    status, words, state, reason = NO_OVERFLOWS[shape]
    small_window(stage)
    stage.tell(HttpFailure(status, {"error": {"message": words}}))
    job_id = stage.submit(piece=LEAN)
    stage.run()

    view = stage.job(job_id)
    assert (view.state, view.reason) == (state, reason)
    assert stage.endpoint.calls() == 1


def test_japanese_text_does_not_jump(stage: Stage) -> None:
    """Half kana, half ASCII: estimated by class, so that no request overflows and one compaction is enough at a time."""
    small_window(stage, compression={"keep_recent": 4})
    stage.acts[0].effect = lambda _, given: f"{given['n']} " + "かなとabc漢字def" * 40

    job_id = play(stage, working(30))

    assert stage.job(job_id).state == "succeeded"
    assert not stage.endpoint.overflows
    assert summaries(stage, job_id)


def test_many_schemas_count(stage: Stage) -> None:
    """Forty tools take more than half of the window: the context is compacted in time all the same."""
    from tests.agent.stage import Act

    stage.acts += [Act(f"Tool{n}", description="Does a thing. " * 11) for n in range(40)]
    small_window(stage, compression={"keep_recent": 2})
    fill(stage, 200)
    lean(stage, allowed_tools=["*"])
    lean(stage, allowed_tools=["Act", "Tool*"])

    job_id = play(stage, working(20))

    assert stage.endpoint.requests[0].prompt_tokens > WINDOW * 0.59, stage.endpoint.requests[0].prompt_tokens
    assert stage.job(job_id).state == "succeeded"
    assert not stage.endpoint.overflows
    assert summaries(stage, job_id)


def test_statistics_of_the_context_are_kept(stage: Stage) -> None:
    roomy(stage)
    job_id = play(stage, working(24))
    row = stage.row(job_id)
    assert row["total_summaries"] == 1
    last = agent_requests(stage)[-1]
    assert row["final_token_count"] == pytest.approx(last.prompt_tokens, rel=0.1)
    assert row["final_message_count"] < row["total_messages"]
    told = stage.job(job_id).as_dict()
    for name in (
        "total_messages",
        "total_summaries",
        "total_tool_calls",
        "final_token_count",
        "final_message_count",
    ):
        assert told[name] == row[name] > 0


def test_a_retry_tries_again_to_make_room(stage: Stage) -> None:
    small_window(stage, compression=OFF)
    fill(stage, 250)
    job_id = play(stage, endless)
    assert stage.job(job_id).state == "aborted"
    small_window(stage, compression={"keep_recent": 4})
    stage.retry(job_id)
    stage.endpoint.mind = lambda request: Reply("summary") if is_summary(request) else COMPLETE
    assert drive(stage, job_id) == State.SUCCEEDED
    assert len(summaries(stage, job_id)) == 1


def test_a_job_whose_queue_nobody_serves_says_so(stage: Stage) -> None:
    from jobs.views import list_jobs
    from tests.factories import set_columns

    job_id = full(stage)
    now = stage.doors.db.clock()
    assert stage.job(job_id).reason_text == "its context is to be summarised"
    set_columns(stage.doors.db, job_id, available_at=now - 11)
    view = stage.job(job_id)
    assert (view.state, view.reason_text) == ("compressing", "no worker serves the context queue")
    assert view.next_action == "start one with: sostenuto worker --queues context"
    assert [found.reason_text for found in list_jobs(stage.doors, OWNER)] == [view.reason_text]
    stage.process.register()
    assert stage.job(job_id).reason_text == "its context is to be summarised"


def test_what_was_summarised_can_be_looked_up(stage: Stage) -> None:
    """By number and by text, in bounded pieces that lose and repeat nothing; another job's is not there."""
    roomy(stage)
    secret = "the colour is Ω-blue"
    acting = working(22)
    stage.acts[0].effect = lambda _, given: (secret if given["n"] == 1 else "x") + " word" * 300
    looked: list[Answer] = [
        Reply(
            calls=(
                Call("recall", {"query": "COLOUR is Ω"}),
                Call("recall", {"seq": 6}),
                Call("recall", {"seq": 99999}),
            )
        ),
        Reply(calls=(Call("recall", {"query": "nowhere to be found"}), Call("recall", {}))),
    ]

    def mind(request: ChatRequest) -> Answer:
        if is_summary(request) or not summaries(stage, job_id) or not looked:
            return acting(request)
        return looked.pop(0)

    stage.endpoint.mind = mind
    job_id = stage.submit(piece=LEAN)
    drive(stage, job_id)

    found = [m.content or "" for m in stage.messages(job_id) if m.tool_name == "recall"]
    first = next(m for m in stage.messages(job_id) if m.role == "tool")
    assert secret in found[0]
    assert found[0].startswith(f"[{first.seq}] result of Act")
    assert "word" in found[1]
    assert found[2] == "There is no message 99999 in this conversation."
    assert found[3] == "No message of this conversation contains it."
    assert found[4] == "Give seq, or query."
    assert run_context(stage.process, None) is None


def test_the_transcript_marks_what_was_summarised(stage: Stage) -> None:
    """The context view is the next request byte for byte, also after a compaction; the transcript says what left it."""
    from jobs.views import list_messages, summarised_by
    from worker.context_view import context_of

    job_id = full(stage)
    run_context(stage.process, None)
    context = context_of(stage.doors.db, job_id)
    rows = list_messages(stage.doors, job_id)
    by = summarised_by(stage.doors, job_id, rows)
    stage.run()

    sent = agent_requests(stage)[-1] if stage.job(job_id).state != "compressing" else None
    resumed = next(r for r in agent_requests(stage) if "## Your work so far" in str(r.messages[1]["content"]))
    assert [part["message"] for part in context["messages"]] == resumed.messages
    assert context["fullness"]["compactions"] == 1
    assert context["fullness"]["usable"] == 7500
    shown = {str(m["content"]) for m in resumed.messages}
    for row in rows:
        if row.role == "tool":
            assert (row.seq in by) is (row.content not in shown), row.seq
    assert set(by.values()) == {1}
    assert sent is not None


def test_an_instruction_longer_than_the_window(stage: Stage) -> None:
    """1.3 million characters: its beginning is shown with where all of it is, and the job can work."""
    small_window(stage)
    text = "Count. " + "word " * 260_000

    job_id = play(stage, working(2), instruction=text[:990_000])

    assert stage.job(job_id).state == "succeeded"
    [first, *_] = stage.endpoint.requests
    told = str(first.messages[1]["content"])
    assert "## Task\nCount. word" in told
    assert told.endswith("All of it is in the file logs/instruction.md: read it on in parts.]")
    assert first.prompt_tokens < WINDOW * 0.6
    assert (stage.workspace(job_id) / "logs/instruction.md").read_text() == text[:990_000]


def test_a_result_larger_than_the_window_lies_in_a_file(stage: Stage) -> None:
    """1.7 MB of a result: cut at its budget, and whole in the workspace, with a pointer to it."""
    small_window(stage)
    stage.acts[0].effect = lambda *_: "BEGIN " + "word " * 340_000 + "END"

    job_id = play(stage, working(1))

    [result, _] = stage.results(job_id)
    path = result.rpartition(" are in ")[2].partition(":")[0]
    whole = (stage.workspace(job_id) / path).read_text()
    assert (len(whole), whole[-3:]) == (1_700_009, "END")
    assert result.startswith("BEGIN word")
    assert len(result) < 30_000
    assert stage.job(job_id).state == "succeeded"


def test_a_cancel_stops_the_summarisers_call(stage: Stage) -> None:
    """Cancelled while the summary is being written: the call is dropped at once, the run writes nothing."""
    import threading

    job_id = full(stage)
    gate = stage.endpoint.hold("*/compaction/*")
    thread = threading.Thread(target=run_context, args=(stage.process, None))
    thread.start()
    gate.wait_held()
    assert stage.job(job_id).reason_text == "its context is being summarised"
    stage.cancel(job_id)
    stage.look()
    thread.join(30)
    assert not thread.is_alive()
    gate.release()
    assert stage.job(job_id).state == "cancelled"
    assert summaries(stage, job_id) == []
