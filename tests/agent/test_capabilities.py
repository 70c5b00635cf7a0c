"""What an endpoint cannot take is met once, worked around, remembered for all workers, and told in the history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from storage.model_facts import all_facts, learn
from tests.agent.stage import COMPLETE, MODEL, Line, Stage, call, calls
from tests.agent.test_images import png
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure
from tests.strict_endpoint.rules import Profile
from worker.model.rules import IMAGE_PLACEHOLDER
from worker.slices import run_slice

TWO = calls(call("Again", n=1), call("Again", n=2))


def refusal(text: str, status: int = 400) -> HttpFailure:
    return HttpFailure(status, {"error": {"message": text, "type": "invalid_request_error", "code": None}})


def picky(
    stage: Stage, bad: Callable[[dict[str, Any]], bool], failure: HttpFailure, *lines: Line
) -> list[ChatRequest]:
    """A model that refuses requests that are `bad`; returns those that it refused."""
    tale = stage.tell(*lines)
    refused: list[ChatRequest] = []

    def mind(request: ChatRequest) -> Answer:
        if bad(request.body):
            refused.append(request)
            return failure
        return tale(request)

    stage.endpoint.mind = mind
    return refused


def _roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def _ids(body: dict[str, Any]) -> list[str]:
    return [c["id"] for m in body["messages"] for c in m.get("tool_calls") or ()]


CASES: dict[str, tuple[Callable[[dict[str, Any]], bool], str]] = {
    "stream_options": (lambda b: "stream_options" in b, "Unsupported parameter: 'stream_options'"),
    "limit_field": (
        lambda b: "max_tokens" in b,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    ),
    "parameter temperature": (
        lambda b: "temperature" in b,
        "Unsupported value: 'temperature' does not support 0.2 with this model.",
    ),
    "streaming": (lambda b: b["stream"], "Your organization must be verified to stream this model."),
    "parallel_calls": (
        lambda b: any(len(m.get("tool_calls") or ()) > 1 for m in b["messages"]),
        "This model only supports single tool-calls at once!",
    ),
    "null_content": (
        lambda b: any(m["role"] == "assistant" and m.get("content") is None for m in b["messages"]),
        "messages.2.content: none is not an allowed value",
    ),
    "ids": (
        lambda b: any(len(identifier) != 9 for identifier in _ids(b)),
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
    ),
    "max_output": (
        lambda b: (b.get("max_tokens") or 0) > 512,
        "max_tokens is too large: 4000. This model supports at most 512 completion tokens.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_met_once_and_remembered(stage: Stage, name: str) -> None:
    """Whatever the model cannot take: asked once more in another form, then always so, after a restart too."""
    bad, text = CASES[name]
    options = {"models": {"*": {"parameters": {"temperature": 0.2}}}, "max_output_tokens": 4000}
    stage.reopen(**options)
    refused = picky(stage, bad, refusal(text), TWO, COMPLETE, TWO, COMPLETE)
    first = stage.submit()
    stage.run()
    assert stage.job(first).state == "succeeded"
    assert len(refused) == 1
    told = stage.events(first, "model_adapted")
    assert told == [{"model": MODEL, "refused": [name]}]
    stage.restart()
    second = stage.submit()
    stage.run()
    assert stage.job(second).state == "succeeded"
    assert len(refused) == 1
    assert stage.events(second, "model_adapted") == []
    assert [act["n"] for act in stage.acts[1].runs] == [1, 2, 1, 2]


@pytest.mark.parametrize("where", ["in the same process", "in another process"])
def test_what_one_job_learned_opens_a_new_epoch_of_the_others(stage: Stage, where: str) -> None:
    """Two jobs in mid-conversation: one meets the refusal, the other's messages change too, without a refusal of its own.

    Under its old label they would not begin with what was sent before: the endpoint refuses that.
    """
    strict = threading.Event()
    learned = threading.Event()

    def bad(body: dict[str, Any]) -> bool:
        return strict.is_set() and CASES["parallel_calls"][0](body)

    def mind(request: ChatRequest) -> Answer:
        if bad(request.body):
            return refusal(CASES["parallel_calls"][1])
        acted = sum(message["role"] == "tool" for message in request.messages)
        return TWO if acted < 4 else COMPLETE

    def waits(
        _: object, __: object
    ) -> None:  # the second job stands between two steps until the first has learned
        if threading.current_thread().name == "second" and not learned.is_set():
            strict.set()
            assert learned.wait(60)

    stage.endpoint.mind = mind
    stage.acts[1].effect = waits
    stage.restart(slice_steps=1)
    first = stage.submit()
    stage.run()
    assert stage.row(first)["steps"] == 1
    stage.restart(slice_steps=100)
    process = stage.process if where == "in the same process" else stage.new_process("worker-elsewhere")
    second = stage.submit(priority=1)  # claimed before the first one
    thread = threading.Thread(target=run_slice, args=(process, second), name="second")
    thread.start()
    assert strict.wait(60)
    stage.run()
    assert stage.events(first, "model_adapted") == [{"model": MODEL, "refused": ["parallel_calls"]}]
    process.models.memory._read_at = None  # ten seconds later another process has read of it
    process.models.memory.refresh()
    learned.set()
    thread.join(60)
    assert {stage.job(job).state for job in (first, second)} == {"succeeded"}
    assert stage.events(second, "model_adapted") == []
    assert [stage.row(job)["epoch"] for job in (first, second)] == [2, 2]
    labels = [request.label for request in stage.endpoint.requests if request.label.startswith(second)]
    assert labels == [f"{second}/1/1", f"{second}/1/2", f"{second}/1/2"]


def test_each_refusal_that_changes_the_messages_opens_an_epoch(stage: Stage) -> None:
    """Two refusals in one call, then a failure: three forms of the same conversation, none under the label of another."""
    stage.endpoint.mind = stage.tell(TWO)
    job_id = stage.submit()
    stage.restart(slice_steps=1)
    stage.run()
    stage.restart(slice_steps=100)
    answers = iter([refusal(CASES["parallel_calls"][1]), refusal(CASES["ids"][1]), HttpFailure(500, b"down")])
    stage.endpoint.mind = lambda _: next(answers, COMPLETE)
    stage.run()
    assert stage.job(job_id).reason == "model_unavailable"
    stage.make_due(job_id)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    labels = [request.label for request in stage.endpoint.requests]
    assert labels[:4] == [f"{job_id}/1/{epoch}" for epoch in (1, 1, 2, 3)]
    assert len(set(labels[4:]) & set(labels[:3])) == 0


def test_a_server_without_a_system_role_reads_it_in_the_first_user_message(stage: Stage) -> None:
    stage.endpoint.profile = Profile(system_role=False)
    stage.tell(TWO, COMPLETE)
    job_id = stage.submit()
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert stage.events(job_id, "model_adapted") == [{"model": MODEL, "refused": ["system"]}]
    assert all(_roles(request.body)[0] == "user" for request in stage.endpoint.requests)
    assert "You are" in str(stage.endpoint.requests[0].messages[0]["content"])
    refusals = [violation for violation in stage.endpoint.violations if violation.rule == "no_system"]
    assert len(refusals) == 1
    stage.endpoint.violations.clear()


def test_a_server_that_takes_no_user_after_a_tool_reads_it_in_the_result(stage: Stage) -> None:
    stage.endpoint.profile = Profile(user_after_tool=False)
    gate = stage.endpoint.hold()
    stage.tell(TWO, COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        stage.comment(job_id, "think of the cat")
        gate.release()
    assert stage.job(job_id).state == "succeeded"
    last = stage.endpoint.requests[-1].messages[-1]
    assert last["role"] == "tool"
    assert "think of the cat" in last["content"]
    assert stage.events(job_id, "model_adapted") == [{"model": MODEL, "refused": ["user_after_tool"]}]
    stage.endpoint.violations.clear()


def test_what_cannot_be_worked_around_is_not_asked_twice(stage: Stage) -> None:
    """A model without tools: the job fails at once, and says what to do."""
    refused = picky(stage, lambda _: True, refusal("registry/x does not support tools"))
    job_id = stage.submit()
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.reason, len(refused)) == ("failed", "model_error", 1)
    assert "does not support tools" in (job.error or "")


def test_a_refusal_of_what_was_not_sent_is_not_asked_twice(stage: Stage) -> None:
    """An endpoint that always speaks of images though there are none must not be asked for ever."""
    refused = picky(stage, lambda _: True, refusal("image input is not supported"))
    job_id = stage.submit()
    stage.run()
    assert (stage.job(job_id).state, len(refused)) == ("failed", 1)


def test_reasoning_goes_back_once_a_server_demands_it(stage: Stage) -> None:
    """And only to the model that said it."""
    thinking = calls(call("Again", n=1))
    thinking = type(thinking)(calls=thinking.calls, reasoning={"reasoning_content": "hm"})
    stage.endpoint.profile = Profile(reasoning=True)

    def bad(body: dict[str, Any]) -> bool:
        said = [m for m in body["messages"] if m["role"] == "assistant"]
        return any("reasoning_content" not in m for m in said)

    text = "thinking is enabled but reasoning_content is missing: reasoning_content must be passed back"
    refused = picky(stage, bad, refusal(text), thinking, COMPLETE)
    job_id = stage.submit()
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(refused) == 1
    assert stage.endpoint.requests[-1].messages[2]["reasoning_content"] == "hm"


def test_an_overflow_teaches_the_window(stage: Stage) -> None:
    """The number in the refusal is remembered for all workers, and the room of later steps comes from it."""
    text = "This model's maximum context length is 20000 tokens. However, your messages resulted in 30000 tokens."
    stage.tell(refusal(text))
    job_id = stage.submit()
    stage.run()
    assert stage.process.profile(MODEL).window == 20_000
    stage.restart()
    stage.process.models.memory.refresh()
    profile = stage.process.profile(MODEL)
    assert (profile.window, profile.window_source) == (20_000, "learned")
    assert stage.job(job_id).state != "running"


def test_a_server_is_asked_for_its_window_once(stage: Stage) -> None:
    stage.endpoint.models = [{"id": MODEL, "max_model_len": 12_345}]
    stage.play(TWO, COMPLETE)
    assert stage.process.profile(MODEL).window == 12_345
    asked = stage.endpoint.side_calls["models"]
    assert asked == 1
    stage.restart()
    stage.play(COMPLETE)
    assert stage.endpoint.side_calls["models"] == asked


def test_a_server_that_does_not_tell_is_not_asked_at_each_step(stage: Stage) -> None:
    stage.play(TWO, TWO, COMPLETE)
    assert stage.process.profile(MODEL).window is None
    assert stage.endpoint.side_calls["models"] == 1


def test_facts_of_two_workers_add_up(stage: Stage) -> None:
    db = stage.doors.db
    learn(db, "here m", {"window": 1_000, "refused": {"images": True}})
    learn(db, "here m", {"max_output": 77, "refused": {"ids": True}})
    learn(db, "there m", {"window": 5})
    assert all_facts(db)["here m"] == {
        "window": 1_000,
        "max_output": 77,
        "refused": {"images": True, "ids": True},
    }


def test_an_image_that_is_refused_becomes_a_placeholder_and_is_never_sent_again(stage: Stage) -> None:
    """One more call without it; later images of this model, in other jobs too, are placeholders at once."""
    stage.endpoint.profile = Profile(vision=False)
    look = calls(call("ReadImage", path="input/a.png"))
    for expected in (1, 1):
        job_id = stage.play(look, COMPLETE, files={"a.png": png()})
        assert stage.job(job_id).state == "succeeded"
        refusals = [violation for violation in stage.endpoint.violations if violation.rule == "vision"]
        assert len(refusals) == expected
        last = stage.endpoint.requests[-1].messages[-1]["content"]
        assert isinstance(last, str)
        assert IMAGE_PLACEHOLDER in last
        stage.restart()
    stage.endpoint.violations.clear()
