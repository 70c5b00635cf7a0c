"""What goes wrong around batches and compactions elsewhere, by the real loop and the real tools."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from PIL import Image

from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.context.driving import (
    LEAN,
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
)
from tests.strict_endpoint import Answer, ChatRequest, Reply

TODO = {"id": "1", "content": "dig the garden", "status": "pending"}


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def test_nothing_is_wedged_into_a_batch(stage: Stage) -> None:
    """A comment, a reminder and the request to wrap up fall due between two results; a call of an unknown tool fails.

    They wait until the batch is closed, and then are one user message; the error is that call's result.
    """
    small_window(stage, compression={"enabled": False})
    ids: list[str] = []

    def effect(_: object, given: dict[str, int]) -> str:
        if given["n"] == 6:
            stage.comment(ids[0], "one more thing")
        return "word " * (900 if given["n"] < 5 else 3_000)

    stage.acts[0].effect = effect
    batch = calls(call("Act", n=5), call("Grep_Files"), call("Act", n=6), call("Act", n=7))
    stage.tell(
        calls(call("todo_write", todos=[TODO])),
        *(calls(call("Act", n=n)) for n in range(1, 5)),
        batch,
        COMPLETE,
    )
    ids.append(stage.submit(piece=LEAN))
    stage.run()
    assert stage.job(ids[0]).state == "succeeded", stage.job(ids[0]).error
    *_, reply, first, unknown, third, fourth, gap = stage.endpoint.requests[-1].messages
    assert [m["role"] for m in (reply, first, unknown, third, fourth, gap)] == [
        "assistant",
        *["tool"] * 4,
        "user",
    ]
    assert unknown["content"].startswith("Error: there is no tool 'Grep_Files' here. Allowed tools: ")
    for text in ("one more thing", "dig the garden", "of the context that you may use are used up"):
        assert gap["content"].count(text) == 1
        assert all(text not in m["content"] for m in (first, third, fourth))


def picture(colour: str) -> bytes:
    """As dear by our count as by the endpoint's."""
    buffer = io.BytesIO()
    Image.new("RGB", (800, 750), colour).save(buffer, "PNG")
    return buffer.getvalue()


COLOURS = ("red", "green", "blue", "white", "black", "pink")


def images_in(request: ChatRequest) -> int:
    return sum(
        part["type"] == "image_url"
        for message in request.messages
        if isinstance(message["content"], list)
        for part in message["content"]
    )


def test_images_through_a_compaction(stage: Stage) -> None:
    """Names in the summary's request; only the newest stays; its size is counted; an older one can be shown again."""
    small_window(stage, 9_000, compression={"keep_recent": 6})
    lean(stage, allowed_tools=["Act", "ReadImage"])
    fill(stage, 250)
    steps = 0
    again: list[ChatRequest] = []

    def mind(request: ChatRequest) -> Answer:
        nonlocal steps
        if is_summary(request):
            return Reply("Six images were looked at.")
        if again:
            again.append(request)
            return COMPLETE
        if "## Your work so far" in text_of(request.messages[1]):
            again.append(request)
            return calls(call("ReadImage", path="input/red.png"))
        steps += 1
        if steps % 2 == 0 and steps // 2 <= len(COLOURS):
            return calls(call("ReadImage", path=f"input/{COLOURS[steps // 2 - 1]}.png"))
        return calls(call("Act", n=steps))

    job_id = play(stage, mind, files={f"{colour}.png": picture(colour) for colour in COLOURS})

    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    assert len(summaries(stage, job_id)) == 1
    told = "\n".join(text_of(request.messages[1]) for request in summary_requests(stage))
    assert all(images_in(request) == 0 for request in summary_requests(stage))
    assert "[image input/red.png 800×750]" in told
    after, shown_again = again
    newest = [m for m in after.messages if isinstance(m["content"], list)]
    assert [images_in(after), images_in(shown_again)] == [1, 2]
    shown = [row for row in stage.messages(job_id) if row.kind == "gap" and "images" in (row.extra or {})]
    assert text_of(newest[0]).startswith(shown[-2].content or "?")
    kept = [colour for colour in COLOURS if f"[no longer shown: input/{colour}.png;" in str(after.messages)]
    assert all(f"[image input/{colour}.png 800×750]" not in told for colour in kept)
    [event] = stage.events(job_id, "compressed")
    assert event["tokens_after"] == pytest.approx(after.prompt_tokens, rel=0.1)


def test_work_that_is_done_is_not_done_again(stage: Stage) -> None:
    """An agent that goes by what it sees, over many compactions: each item of its task is done once, in order."""
    roomy(stage)
    items = 70

    def done_in(text: str) -> set[int]:
        return {int(n) for n in re.findall(r"result (\d+) word", text)} | {
            int(n) for n in re.findall(r"done: (\d+)", text)
        }

    def mind(request: ChatRequest) -> Answer:
        if is_summary(request):
            return Reply(f"done: {max(done_in(text_of(request.messages[1])))}")
        head = text_of(request.messages[1])
        assert head.endswith("## Task\nDo items 1 to 70, each once.")
        if "done: " in head:
            assert "What it calls done is done: do not do it again." in head
        done = max(done_in("\n".join(text_of(m) for m in request.messages if m["content"])), default=0)
        return COMPLETE if done == items else calls(call("Act", n=done + 1))

    job_id = play(stage, mind, instruction=f"Do items 1 to {items}, each once.")

    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    assert len(summaries(stage, job_id)) >= 3
    assert [run["n"] for run in stage.acts[0].runs] == list(range(1, items + 1))


def test_todos_outlive_a_compaction_and_two_dead_workers(stage: Stage) -> None:
    """The exact list, once after each compaction, also where workers died on both sides of it, without a new todo_write."""
    said = 0

    def mind(request: ChatRequest) -> Answer:
        nonlocal said
        if is_summary(request):
            return Reply("Something was done.")
        said += 1
        return (
            calls(call("todo_write", todos=[TODO]))
            if said == 1
            else COMPLETE
            if said == 30
            else calls(call("Act", n=said))
        )

    job_id = full(stage, mind)
    stage.restart()
    assert drive(stage, job_id) == "succeeded"
    kept = [gap for gap in stage.gaps(job_id) if "exactly as it stands" in gap]
    assert len(kept) == len(summaries(stage, job_id)) >= 1
    assert all(gap.count("- [pending] 1: dig the garden") == 1 for gap in kept)
    last = agent_requests(stage)[-1]
    assert sum(text_of(m).count("exactly as it stands") for m in last.messages if m["content"]) == 1
