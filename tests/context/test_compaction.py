"""Compaction from end to end: what the model sees before and after, and what it costs."""

from __future__ import annotations

import itertools
import json

import pytest

from jobs.states import State
from storage.summaries import list_summaries
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls
from tests.context.driving import (
    LEAN,
    WINDOW,
    agent_requests,
    drive,
    fill,
    full,
    is_summary,
    play,
    roomy,
    small_window,
    summaries,
    summary_requests,
    working,
)
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure, Reply
from tests.strict_endpoint.minds import script_mind
from worker.context_run import run_context
from worker.model.script import Script
from worker.tokens import estimate_tokens


def head(request: ChatRequest) -> str:
    return str(request.messages[1]["content"])


def test_a_long_job_goes_on_after_a_compaction(stage: Stage) -> None:
    """The same movement goes on: the summary and the pinned texts in front, the newest messages word for word."""
    roomy(stage)
    job_id = play(stage, working(30), instruction="Count the stars.\nExactly.")

    row = stage.row(job_id)
    assert (row["state"], row["visit"]) == ("succeeded", 1)
    assert row["total_summaries"] == len(summaries(stage, job_id)) >= 1
    assert not stage.endpoint.overflows
    first, last = agent_requests(stage)[0], agent_requests(stage)[-1]
    assert last.messages[0] == first.messages[0]  # pinned byte for byte
    assert last.tools == first.tools
    assert head(last).endswith("## Task\nCount the stars.\nExactly.")
    assert summaries(stage, job_id)[-1] in head(last)
    assert [m["role"] for m in last.messages[2:4]] == ["assistant", "tool"]
    assert {event["to"] for event in stage.events(job_id, "transition")} == {"COMPLETE"}


def test_what_is_taken_out_enters_a_summary_in_every_round(stage: Stage) -> None:
    """Round 2 and later carry the summary so far on, and each row goes into exactly one of them."""
    roomy(stage)

    job_id = play(stage, working(60))

    found = list_summaries(stage.doors.db, job_id)
    assert len(found) >= 3
    for before, after in itertools.pairwise(found):
        assert after.first_seq > before.last_seq
        taken = [m for m in stage.messages(job_id) if before.last_seq < m.seq < after.first_seq]
        assert all(m.kind in ("summary", "head", "system") for m in taken)
    requests = summary_requests(stage)
    for before, request in zip(found, requests[1:], strict=False):
        assert f"<summary_so_far>\n{before.content}" in head(request)
    everything = "\n".join(map(head, requests))
    for message in stage.messages(job_id):
        if message.role == "tool" and message.seq <= found[-1].last_seq:
            assert everything.count(f"\n[{message.seq}] ") == 1
    charged = sum(request.prompt_tokens for request in stage.endpoint.requests)
    assert stage.row(job_id)["prompt_tokens"] == charged
    assert sum(summary.prompt_tokens for summary in found) == sum(r.prompt_tokens for r in requests)


def test_one_summariser_call_for_one_crossing(stage: Stage) -> None:
    """Usage that is older than the swap is void: neither it nor a restart makes a second compaction."""
    roomy(stage)
    stage.endpoint.mind = working(30)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    assert stage.job(job_id).state == "compressing"
    run_context(stage.process, None)
    after = stage.row(job_id)
    assert (after["state"], after["measured_tokens"]) == ("queued", 0)
    assert after["context_tokens"] < WINDOW * 0.6
    stage.restart()
    before = len(stage.endpoint.requests)
    stage.run()

    assert not is_summary(stage.endpoint.requests[before])
    steps_between = [is_summary(r) for r in stage.endpoint.requests]
    assert not any(a and b for a, b in itertools.pairwise(steps_between))


def test_a_summary_that_is_not_smaller_is_discarded_and_the_breaker_holds(stage: Stage) -> None:
    """An echo, longer than what it summarises: nothing is replaced, and the summariser is asked a few times at most."""
    roomy(stage)

    def echo(request: ChatRequest) -> Answer:
        return Reply(head(request) + head(request)[: len(head(request)) // 10])

    job_id = play(stage, working(40, summary=echo))

    assert summaries(stage, job_id) == []
    assert 1 <= len(summary_requests(stage)) <= 4
    assert stage.events(job_id, "compaction_discarded")
    assert len(agent_requests(stage)[-1].messages) > 20  # the conversation was left as it was
    assert not stage.endpoint.overflows


def test_the_summariser_fails_halfway(stage: Stage) -> None:
    """Chunk 1 is fine, chunk 2 answers 500: nothing is swapped, nothing is lost; the next try does it."""
    small_window(stage, compression={"keep_recent": 4, "token_threshold": 6300})
    fill(stage, 300)
    failing = [False, True]

    def summary(request: ChatRequest) -> Answer:
        if failing and failing.pop(0):
            return HttpFailure(500, {"error": {"message": "broken"}})
        return Reply("fine so far")

    stage.endpoint.mind = working(30, summary=summary)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    before = stage.row(job_id)
    run_context(stage.process, None)
    failed = stage.row(job_id)
    if failed["state"] == "compressing":
        assert failed["reason"] == "model_unavailable"
        unchanged = ("tail_seq", "summary_seq", "total_messages", "context_tokens", "visit")
        assert [failed[name] for name in unchanged] == [before[name] for name in unchanged]
    assert drive(stage, job_id) == "succeeded"
    assert summaries(stage, job_id)


def test_a_summariser_that_always_fails_lets_the_job_go_on(stage: Stage) -> None:
    roomy(stage)

    job_id = play(stage, working(18, summary=lambda _: HttpFailure(500, {"error": {"message": "broken"}})))

    assert stage.row(job_id)["state"] == "succeeded"
    [kept, *_] = stage.events(job_id, "compaction_discarded")
    assert "broken" in kept["detail"]


@pytest.mark.parametrize("rounds", [10])
def test_a_verbatim_echo_never_makes_the_context_grow(stage: Stage, rounds: int) -> None:
    """A summariser that repeats the summary so far and adds to it, ten rounds: summaries are capped, the system
    message stays pinned."""
    roomy(stage)

    def echo(request: ChatRequest) -> Answer:
        so_far = head(request).partition("<summary_so_far>")[2].partition("</summary_so_far>")[0]
        return Reply(so_far + "more and more " * 100)

    job_id = play(stage, working(rounds * 19, summary=echo))

    found = summaries(stage, job_id)
    assert len(found) >= rounds
    assert max(map(estimate_tokens, found)) <= WINDOW // 8
    assert len({str(r.messages[0]) for r in agent_requests(stage)}) == 1
    assert stage.row(job_id)["state"] == "succeeded"


def test_a_batch_is_never_split(stage: Stage) -> None:
    """Six calls in one reply, four messages to keep: the call and all its results stay on one side."""
    small_window(stage, compression={"keep_recent": 4})
    stage.acts[0].effect = lambda _, given: f"{given} " + "word " * 100
    made = 0

    def mind(request: ChatRequest) -> Answer:
        nonlocal made
        if is_summary(request):
            return Reply("summary")
        made += 1
        return COMPLETE if made > 16 else calls(*(call("Act", n=10 * made + n) for n in range(6)))

    job_id = play(stage, mind)

    assert stage.row(job_id)["state"] == "succeeded"
    assert summaries(stage, job_id)
    seqs = {m.seq: m for m in stage.messages(job_id)}
    for found in list_summaries(stage.doors.db, job_id):
        assert seqs[found.first_seq].role == "assistant"
        assert seqs[found.last_seq].role == "tool"


def test_comments_that_arrive_meanwhile_appear_once_after_the_summary(stage: Stage) -> None:
    job_id = full(stage)
    stage.comment(job_id, "use metres")
    run_context(stage.process, None)
    drive(stage, job_id)

    assert sum("use metres" in gap for gap in stage.gaps(job_id)) == 1
    shown = [str(r.messages).count("use metres") for r in agent_requests(stage)]
    first = shown.index(1)
    assert set(shown[:first]) == {0}
    assert set(shown[first:]) == {1}
    assert "use metres" not in head(agent_requests(stage)[first])


def test_exact_open_todos_once_after_a_compaction(stage: Stage) -> None:
    """The list survives as state, not as prose: shown exactly, once, after the kept tail; also after a restart."""
    roomy(stage)
    todos = [{"id": "1", "content": "count Ω twice", "status": "in_progress"},
             {"id": "2", "content": "done thing", "status": "completed"}]  # fmt: skip
    acting = working(22)
    first = True

    def mind(request: ChatRequest) -> Answer:
        nonlocal first
        if first:
            first = False
            return calls(call("todo_write", todos=todos))
        return acting(request)

    stage.endpoint.mind = mind
    job_id = stage.submit(piece=LEAN)
    stage.run()
    run_context(stage.process, None)
    stage.restart()
    drive(stage, job_id)

    kept = [gap for gap in stage.gaps(job_id) if "exactly as it stands" in gap]
    assert len(kept) == len(summaries(stage, job_id)) == 1
    assert "- [in_progress] 1: count Ω twice" in kept[0]
    assert "done thing" not in kept[0]
    assert stage.row(job_id)["state"] == "succeeded"


def test_old_results_are_shortened_before_a_model_is_asked(stage: Stage) -> None:
    """A few huge old results: showing them shortened is enough, costs no call, and is nothing lost."""
    small_window(stage, compression={"keep_recent": 2})
    sizes = itertools.chain([2200, 1500], itertools.repeat(60))
    stage.acts[0].effect = lambda _, given: f"result {given['n']} " + "word " * next(sizes)

    job_id = play(stage, working(40))

    assert stage.row(job_id)["state"] == "succeeded"
    [event, *_] = stage.events(job_id, "context_trimmed")
    assert event["tokens_after"] < event["tokens_before"] * 0.7
    trimmed = next(
        r for r in agent_requests(stage) if "characters of this old result are left out" in str(r.messages)
    )
    whole = next(m for m in stage.messages(job_id) if m.role == "tool")
    assert len(whole.content or "") > 7000
    assert f"recall with seq={whole.seq}" in str(trimmed.messages)
    assert "result 1 word" in str(trimmed.messages)


def test_pause_cancel_and_resume_while_compressing(stage: Stage) -> None:
    job_id = full(stage)
    view = stage.job(job_id)
    assert (view.state, view.reason) == ("compressing", "context_full")
    assert stage.pause(job_id).state == "paused"
    assert run_context(stage.process, None) is None
    assert stage.resume(job_id).state == "compressing"
    assert drive(stage, job_id) == "succeeded"
    assert len(summaries(stage, job_id)) == 1

    stage.endpoint.mind = working(22)
    other = stage.submit(piece=LEAN)
    stage.run()
    assert stage.job(other).state == "compressing"
    assert stage.cancel(other).state == "cancelled"
    assert run_context(stage.process, None) is None


def test_a_compaction_whose_job_was_taken_writes_nothing(stage: Stage) -> None:
    """While the summariser thinks, its job is paused: the summary comes too late and changes nothing, but was paid."""
    roomy(stage)
    paused: list[str] = []

    def summary(_: ChatRequest) -> Answer:
        paused.append(stage.pause(job_id).state)
        return Reply("too late")

    stage.endpoint.mind = working(22, summary=summary)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    before = stage.row(job_id)
    run_context(stage.process, None)
    after = stage.row(job_id)

    assert paused == ["paused"]
    assert after["state"] == "paused"
    unchanged = ("tail_seq", "summary_seq", "total_messages", "total_summaries", "context_tokens", "epoch")
    assert [after[name] for name in unchanged] == [before[name] for name in unchanged]
    assert summaries(stage, job_id) == []
    assert after["prompt_tokens"] == before["prompt_tokens"] + stage.endpoint.requests[-1].prompt_tokens


def test_a_parked_call_is_never_compacted(stage: Stage) -> None:
    """A question asked at 79%: while it waits nothing is compacted; its answer is the call's result."""
    small_window(stage, compression={"keep_recent": 1})
    fill(stage, 300)
    asked = calls(call("transition", next_step="ASK", summary="Which colour? " + "why " * 600))
    piece = stage.piece("asks", {"name": "work", "rules": [
        {"condition": "done", "next": "COMPLETE"}, {"condition": "unclear", "next": "ASK"}]})  # fmt: skip
    job_id = play(stage, working(14, then=asked), piece=piece)
    assert stage.job(job_id).state == "waiting_human"
    assert run_context(stage.process, None) is None
    stage.endpoint.mind = working(0)
    stage.reply(job_id, "blue")
    assert drive(stage, job_id) == "succeeded"
    last = agent_requests(stage)[-1].messages
    assert any("blue" in str(m["content"]) for m in last if m["role"] in ("tool", "user"))


def test_compressing_survives_a_dead_context_worker(stage: Stage) -> None:
    """The sweep takes the lease back, counts an attempt, and another worker of the queue does it."""
    job_id = full(stage)

    def die(*_: object) -> object:
        raise PowerCut

    with pytest.MonkeyPatch.context() as patch:  # a death, at the one place that asks the model
        patch.setattr("worker.context_run.summarise", die)
        with pytest.raises(PowerCut):
            run_context(stage.process, None)
    stage.expire()
    stage.sweep()
    view = stage.job(job_id)
    assert (view.state, view.reason, view.attempt) == ("compressing", "worker_lost", 1)
    assert drive(stage, job_id) == State.SUCCEEDED
    assert stage.row(job_id)["attempt"] == 0
    assert [run["kind"] for run in stage.runs(job_id)].count("context") == 2


def test_a_script_goes_on_where_it_was(stage: Stage) -> None:
    """The scripted model's step counts the replies that a summary stands for: it repeats and skips nothing."""
    roomy(stage)
    acting = [{"calls": [{"Act": {"n": n}}]} for n in range(1, 41)]
    ending = {"transition": {"next_step": "COMPLETE", "summary": "done"}}
    script = Script.parse(json.dumps({"movements": {"*": [*acting, ending]}}))

    job_id = play(stage, script_mind(script))

    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    assert len(summaries(stage, job_id)) >= 2
    assert [run["n"] for run in stage.acts[0].runs] == list(range(1, 41))
