"""Costs by a table of prices, budgets of cost and time, and going on with more or with another model."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import lifecycle
from jobs.cli.render import usage_text
from jobs.model_settings import Price
from tests.agent.stage import COMPLETE, MODEL, OWNER, Stage, call, calls, go
from tests.model.calling import DONE, call_delta, delta, event
from tests.strict_endpoint import Raw, Reply
from worker.prices import cost_of, price_of

PRICES = {"test-*": {"input": 2.0, "output": 8.0}}
ACT = calls(call("Act"))


def test_the_first_glob_that_fits_counts() -> None:
    prices = {"gpt-5-mini": Price(input=1, output=1), "gpt-*": Price(input=2, output=2)}
    assert price_of(prices, "gpt-5-mini") == prices["gpt-5-mini"]
    assert price_of(prices, "gpt-5") == prices["gpt-*"]
    assert price_of(prices, "GPT-5") is None
    assert price_of(prices, "scripted:/a.yaml") == Price(input=0, output=0)
    assert price_of({"scripted:*": Price(input=3, output=3)}, "scripted:/a.yaml") == Price(input=3, output=3)


@pytest.mark.parametrize(
    ("cached_price", "cached", "cost"),
    [
        (0.5, None, 10 * 2 + 4 * 8),
        (0.5, 0, 10 * 2 + 4 * 8),
        (0.5, 6, 4 * 2 + 6 * 0.5 + 4 * 8),
        (0.0, 6, 4 * 2 + 4 * 8),
        (None, 6, 10 * 2 + 4 * 8),
        (0.5, 99, 10 * 0.5 + 4 * 8),  # an endpoint that counts more cached tokens than tokens
    ],
)
def test_cached_tokens_are_a_part_of_the_prompt(
    cached_price: float | None, cached: int | None, cost: float
) -> None:
    prices = {"*": Price(input=2, output=8, cached_input=cached_price)}
    assert cost_of(prices, "m", 10, 4, cached) == pytest.approx(cost / 1_000_000)
    assert cost_of({}, "m", 10, 4, cached) is None


def test_a_job_costs_what_its_steps_cost(stage: Stage) -> None:
    stage.reopen(prices=PRICES)
    job_id = stage.play(ACT, COMPLETE)
    replies = [m.extra or {} for m in stage.messages(job_id) if m.role == "assistant"]
    for said in replies:
        expected = (said["prompt_tokens"] * 2 + said["completion_tokens"] * 8) / 1_000_000
        assert said["cost"] == pytest.approx(expected)
    job = stage.job(job_id)
    assert job.cost == pytest.approx(sum(said["cost"] for said in replies))
    assert job.tokens == sum(said["prompt_tokens"] + said["completion_tokens"] for said in replies)
    assert job.cost_known


def test_a_model_without_a_price_costs_nothing_and_says_so(stage: Stage) -> None:
    """A cost of 0 that only means "unknown" must not look like a cost; a limit that cannot hold is told, once."""
    stage.tell(ACT, COMPLETE, COMPLETE)
    limited, plain = stage.submit(budget={"max_cost": 1.0}), stage.submit()
    stage.run()
    stage.run()
    for job_id in (limited, plain):
        assert (stage.job(job_id).cost, stage.job(job_id).cost_known) == (0.0, False)
    assert stage.events(limited, "cost_unknown") == [{"model": MODEL}]
    assert stage.events(plain, "cost_unknown") == []


def test_a_cost_budget_pauses_at_a_step_boundary_and_more_goes_on(stage: Stage) -> None:
    stage.reopen(prices={"*": {"input": 1e9, "output": 1e9}})  # each token costs more than the budget has
    job_id = stage.play(ACT, budget={"max_cost": 0.5})
    job = stage.job(job_id)
    assert (job.state, job.reason, job.steps) == ("paused", "budget_exceeded", 1)
    assert len(stage.acts[0].runs) == 1  # the step was ended: its call has its result
    assert job.reason_text == "its cost budget of 0.5 is used up"
    assert job.next_action == f"raise it with: sostenuto resume {job_id} --max-cost N"

    stage.resume(job_id)
    stage.tell()
    stage.run()
    assert stage.job(job_id).reason == "budget_exceeded"  # without more nothing is spent

    stage.resume(job_id, max_cost=1e9)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert len(stage.acts[0].runs) == 1


def test_each_reply_says_what_it_took(stage: Stage) -> None:
    """Counted by the endpoint with what it had cached, or estimated and marked as such."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}}
    piece = {"index": 0, "id": "a", "function": {"name": "Act", "arguments": "{}"}}
    counted = Raw(
        (call_delta(piece), delta(finish="tool_calls"), event({"choices": [], "usage": usage}), DONE)
    )
    stage.reopen(prices={"*": {"input": 2, "output": 8, "cached_input": 1}})
    job_id = stage.play(counted, Reply(calls=COMPLETE.calls, usage=False))
    first, second = (m.extra or {} for m in stage.messages(job_id) if m.role == "assistant")
    assert first["cost"] == pytest.approx((100 * 2 + 900 + 7 * 8) / 1_000_000)
    assert "estimated" not in first
    assert usage_text(first).endswith("1,000 tokens in (900 of them cached), 7 out, cost 0.001156")
    assert second["estimated"]
    assert "about " in usage_text(second)
    assert usage_text({}) == ""


class Clock:
    """Stands in for `time` in the module that measures a run's time; moves only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def passing(self, seconds: float, answer: Any) -> Any:
        """A line of the model that takes so long."""

        def line(_request: object) -> Any:
            self.now += seconds
            return answer

        return line


def test_waiting_for_a_person_takes_none_of_the_time_budget(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("worker.job_run.time", clock)
    job_id = stage.play(clock.passing(40, go("ASK", "Which?")), budget={"max_seconds": 60})
    clock.now += 100_000
    stage.reply(job_id, "blue")
    stage.tell(clock.passing(25, ACT))
    stage.run()
    job = stage.job(job_id)
    assert stage.row(job_id)["active_seconds"] == pytest.approx(65)
    assert (job.state, job.reason_text) == ("paused", "its time budget of 1m is used up")
    assert job.next_action == f"raise it with: sostenuto resume {job_id} --max-time N"
    stage.resume(job_id, max_seconds=100)
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_retry_with_another_model_goes_on_with_it(stage: Stage) -> None:
    """The model that refused is not asked again; what it was priced at stays spent."""
    stage.reopen(prices={MODEL: {"input": 1, "output": 1}})
    stage.tell(ACT, go("ABORT", "too hard"))
    job_id = stage.submit()
    stage.run()
    before = stage.job(job_id).cost
    lifecycle.retry(stage.doors, job_id, OWNER, "ann", "better-model")
    stage.tell(COMPLETE)
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.model) == ("succeeded", "better-model")
    assert [request.body["model"] for request in stage.endpoint.requests] == [MODEL, MODEL, "better-model"]
    assert job.cost == pytest.approx(before)
    assert not job.cost_known
    assert len(stage.acts[0].runs) == 1
