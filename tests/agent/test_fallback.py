"""When a model cannot be asked, the job's next one is: told in the history, bounded, and back when the first can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from storage import registry
from tests.agent.stage import COMPLETE, MODEL, Line, Stage, Tale, call, calls
from tests.strict_endpoint import HttpFailure, Reply, StrictEndpoint
from tests.strict_endpoint.rules import Profile
from worker.endings import MOST_MODEL_FAILURES
from worker.fallback import ASIDE_SECONDS, models_in

BACKUP = "other/backup"
ACT = calls(call("Again", n=1))
DOWN = HttpFailure(500, {"error": {"message": "boom"}})


def error(code: str, text: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": text, "type": code}}


REFUSED = HttpFailure(401, error("invalid_api_key"))


@pytest.fixture
def other(stage: Stage) -> Iterator[StrictEndpoint]:
    with StrictEndpoint(lambda _: COMPLETE) as endpoint:
        stage.reopen(endpoints={"other": {"base_url": endpoint.url}}, fallback_models=[BACKUP])
        yield endpoint
        endpoint.assert_clean()


def say(endpoint: StrictEndpoint, *lines: Line) -> Tale:
    endpoint.mind = tale = Tale(lines)
    return tale


def switches(stage: Stage, job_id: str) -> list[tuple[str, str]]:
    return [(data["from"], data["to"]) for data in stage.events(job_id, "model_switched")]


@pytest.mark.parametrize(
    "failure",
    [
        REFUSED,
        HttpFailure(429, error("insufficient_quota")),
        HttpFailure(404, error("model_not_found", "the model does not exist")),
        HttpFailure(400, error("x", "this model does not support tools")),
        HttpFailure(429, error("rate_limit_exceeded"), {"Retry-After": "120"}),
    ],
)
def test_what_will_not_pass_soon_turns_to_the_next_model(
    stage: Stage, other: StrictEndpoint, failure: HttpFailure
) -> None:
    """No key, no credit, no such model, no tools, busy for long: the same step asks the next one, with all it knows."""
    say(other, ACT, COMPLETE)
    job_id = stage.play(ACT, failure)
    assert stage.job(job_id).state == "succeeded"
    assert switches(stage, job_id) == [(MODEL, BACKUP)]
    assert other.requests[0].body["model"] == "backup"
    assert other.requests[0].replies == 1  # what the first model did is in the conversation
    assert stage.endpoint.calls() == 2


def test_an_endpoint_that_is_down_is_left_after_two_failures(stage: Stage, other: StrictEndpoint) -> None:
    say(other, COMPLETE)
    job_id = stage.play(DOWN)
    assert stage.job(job_id).reason == "model_unavailable"
    assert other.calls() == 0
    stage.make_due(job_id)
    stage.tell(DOWN)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert switches(stage, job_id) == [(MODEL, BACKUP)]
    assert stage.row(job_id)["model_failures"] == 0


def test_other_jobs_go_to_the_next_model_at_once_and_come_back(stage: Stage, other: StrictEndpoint) -> None:
    """The pause is shared; after it the first model is asked again, within a movement too, and the history says so."""
    say(other, COMPLETE, COMPLETE, ACT)
    stage.play(REFUSED)
    stage.tell(COMPLETE)
    stage.restart(slice_steps=1)
    stage.process.cooldowns = _cooldowns(stage)
    second = stage.submit()
    stage.run()
    assert stage.endpoint.calls() == 1
    assert switches(stage, second) == [(MODEL, BACKUP)]

    third = stage.submit()
    stage.run()  # one step, with the other model
    stage.process.cooldowns = {}
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(third).state == "succeeded"
    assert switches(stage, third) == [(MODEL, BACKUP), (BACKUP, MODEL)]


def _cooldowns(stage: Stage) -> dict[str, float]:
    import time

    now = time.monotonic()
    return {key: now + left for key, left in registry.active_cooldowns(stage.doors.db).items()}


def test_each_pause_is_twice_as_long_as_the_one_before(stage: Stage, other: StrictEndpoint) -> None:
    """An endpoint that comes back only to fail again is not asked ever more often."""
    say(other, *[COMPLETE] * 3)
    waits = []
    for _ in range(3):
        stage.process.cooldowns = {}
        stage.play(REFUSED)
        waits.append(max(registry.active_cooldowns(stage.doors.db).values()))
    for number, wait in enumerate(waits):
        assert ASIDE_SECONDS * 2**number - 5 < wait <= ASIDE_SECONDS * 2**number


def test_when_no_model_can_be_asked_the_job_ends_in_bounded_calls(
    stage: Stage, other: StrictEndpoint
) -> None:
    """No ping-pong: all failures in a row count together, whichever model they were of."""
    other.mind = lambda _: DOWN
    stage.endpoint.mind = lambda _: DOWN
    job_id = stage.submit()
    for _ in range(MOST_MODEL_FAILURES + 2):
        stage.run()
        if stage.job(job_id).state == "failed":
            break
        stage.make_due(job_id)
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "model_error")
    assert stage.endpoint.calls() + other.calls() == MOST_MODEL_FAILURES


def test_all_refusing_ends_as_refused(stage: Stage, other: StrictEndpoint) -> None:
    say(other, REFUSED)
    job_id = stage.play(REFUSED)
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "authentication")
    assert stage.endpoint.calls() + other.calls() == 2


def test_a_refused_request_is_no_reason_to_ask_elsewhere(stage: Stage, other: StrictEndpoint) -> None:
    job_id = stage.play(HttpFailure(400, error("invalid_request_error")))
    assert stage.job(job_id).reason == "model_error"
    assert other.calls() == 0


def test_a_short_rate_limit_is_waited_out(stage: Stage, other: StrictEndpoint) -> None:
    job_id = stage.play(HttpFailure(429, error("rate_limit_exceeded"), {"Retry-After": "5"}))
    assert stage.job(job_id).reason == "rate_limited"
    assert other.calls() == 0


def test_a_job_names_its_own_order(stage: Stage, other: StrictEndpoint) -> None:
    """The submitter's list, instead of the movement's and the installation's."""
    stage.reopen(fallback_models=[])
    say(other, COMPLETE)
    job_id = stage.play(REFUSED, model=f"mine, {BACKUP}")
    assert stage.job(job_id).state == "succeeded"
    assert stage.endpoint.requests[0].body["model"] == "mine"
    assert switches(stage, job_id) == [("mine", BACKUP)]


def test_a_movement_names_its_own_order(stage: Stage, other: StrictEndpoint) -> None:
    stage.reopen(fallback_models=[])
    piece = stage.piece(
        "two-models", {"name": "only", "models": ["first", BACKUP], "default_next": "COMPLETE"}
    )
    say(other, COMPLETE)
    job_id = stage.play(REFUSED, piece=piece)
    assert stage.job(job_id).state == "succeeded"
    assert switches(stage, job_id) == [("first", BACKUP)]


def test_a_job_without_another_model_is_not_held_back_by_the_pause(
    stage: Stage, other: StrictEndpoint
) -> None:
    """An endpoint set aside by jobs that have another one is still asked by those that have none."""
    say(other, COMPLETE)
    stage.play(REFUSED)
    stage.restart(fallback_models=[])
    stage.process.cooldowns = _cooldowns(stage)
    job_id = stage.play(COMPLETE)
    assert stage.job(job_id).state == "succeeded"


def test_reasoning_and_ids_follow_the_rules_of_the_new_model(stage: Stage, other: StrictEndpoint) -> None:
    """The thoughts of one model are not sent as another's; ids take the form that the new endpoint wants."""
    rules = {MODEL: {"reasoning": "all"}, BACKUP: {"reasoning": "all", "id_format": "mistral"}}
    stage.reopen(
        models={name: {"endpoint": "other", "name": "backup", **entry} if name == BACKUP else entry
                for name, entry in rules.items()},
    )  # fmt: skip
    stage.endpoint.profile = Profile(reasoning=True)
    thought = Reply(calls=ACT.calls, reasoning={"reasoning_content": "hm"})
    say(other, COMPLETE)
    job_id = stage.play(thought, REFUSED)
    assert stage.job(job_id).state == "succeeded"
    said, result = other.requests[0].messages[2:4]
    assert "reasoning_content" not in said
    assert len(said["tool_calls"][0]["id"]) == 9
    assert result["tool_call_id"] == said["tool_calls"][0]["id"]


def test_a_script_s_path_is_one_name() -> None:
    assert models_in("scripted:/a, b.yaml") == ["scripted:/a, b.yaml"]
    assert models_in("a, b,,c") == ["a", "b", "c"]
    assert models_in("") == []
