"""A run that dies: what is answered, what runs again, what is never asked or done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls
from tests.strict_endpoint import Call
from worker.agent import INTERRUPTED
from worker.slices import run_slice


def dies_at(number: int) -> Callable[[Any, dict[str, Any]], None]:
    """A power cut right after the effect of one call."""

    def effect(_context: Any, given: dict[str, Any]) -> None:
        if given["n"] == number:
            raise PowerCut

    return effect


def go_on(stage: Stage, *lines: Any) -> None:
    """The sweep finds the dead run, and another process takes the job."""
    for act in stage.acts:
        act.effect = None
    stage.sweep()
    stage.restart()
    stage.tell(*lines or [COMPLETE])
    stage.run()


def test_killed_in_the_middle_of_a_batch(stage: Stage) -> None:
    """Three calls, death in the second: the first is not run again, the others are unknown, never dropped."""
    stage.acts[0].effect = dies_at(2)
    stage.tell(calls(*(call("Act", n=n) for n in (1, 2, 3))))
    job_id = stage.submit()
    stage.crash()
    assert stage.call_states(job_id) == ["done", "open", "open"]
    go_on(stage)
    assert stage.results(job_id)[:3] == ["acted 1", INTERRUPTED, INTERRUPTED]
    assert [given["n"] for given in stage.acts[0].runs] == [1, 2]
    job = stage.job(job_id)
    assert (job.state, job.steps) == ("succeeded", 2)
    assert stage.endpoint.calls() == 2  # the committed reply was not asked for again
    assert [run["outcome"] for run in stage.runs(job_id)] == ["lost", "succeed"]
    assert stage.runs(job_id)[1]["attempt"] == 1


def test_a_repeatable_call_is_simply_run_again(stage: Stage) -> None:
    stage.acts[1].effect = dies_at(2)
    stage.tell(calls(call("Again", n=1), call("Again", n=2), call("Act", n=3)))
    job_id = stage.submit()
    stage.crash()
    go_on(stage)
    assert stage.results(job_id)[:3] == ["acted 1", "acted 2", INTERRUPTED]
    assert [given["n"] for given in stage.acts[1].runs] == [1, 2, 2]
    assert stage.acts[0].runs == []


def test_killed_during_the_model_call(stage: Stage) -> None:
    """A reply that was not committed may be asked for again, once a crash; nothing else is."""

    def die(*_: Any) -> None:
        raise PowerCut

    stage.tell(calls(call("Act", n=1)), calls(call("Act", n=2)))
    job_id = stage.submit()
    with pytest.MonkeyPatch.context() as patch:
        stage.acts[0].effect = lambda *_: patch.setattr("worker.agent.store_reply", die)
        stage.crash()
    assert stage.endpoint.calls() == 2
    go_on(stage, calls(call("Act", n=3)), COMPLETE)
    assert stage.endpoint.calls() == 4
    assert stage.job(job_id).steps == 3
    assert [given["n"] for given in stage.acts[0].runs] == [1, 3]


def test_killed_before_the_first_reply(stage: Stage) -> None:
    """The head was built and frozen: the next run begins with the same bytes."""

    def die(*_: Any) -> None:
        raise PowerCut

    stage.tell(COMPLETE)
    job_id = stage.submit(files={"a.txt": b"x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.agent.store_reply", die)
        stage.crash()
    (stage.workspace(job_id) / "output/new.txt").write_text("x")
    go_on(stage)
    first, second = stage.endpoint.requests
    assert first.body == second.body
    assert stage.row(job_id)["visit"] == 1


def test_a_broken_or_unknown_call_of_a_dead_run_is_answered_as_ever(stage: Stage) -> None:
    """What could never have run needs no caution."""
    stage.acts[1].effect = dies_at(0)
    stage.tell(calls(call("Again", n=0), Call("Again", "junk"), call("Nothing")))
    job_id = stage.submit()
    stage.crash()
    go_on(stage)
    _, junk, nothing, _ = stage.results(job_id)
    assert "not valid JSON" in junk
    assert "there is no tool 'Nothing' here" in nothing


def test_a_transition_is_decided_by_the_run_that_finds_it(stage: Stage) -> None:
    def die(*_: Any) -> None:
        raise PowerCut

    stage.tell(COMPLETE)
    job_id = stage.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.agent.decide", die)
        stage.crash()
    go_on(stage)
    assert stage.endpoint.calls() == 1
    assert stage.job(job_id).result == "all is done"


def test_a_zombie_writes_nothing(stage: Stage) -> None:
    """A run that lost its lease in a long tool: its result is refused, the next owner's stands."""
    old = stage.process
    taken: list[str] = []

    def slow(_context: Any, _given: dict[str, Any]) -> str:
        stage.acts[0].effect = None
        stage.expire()
        stage.sweep()
        stage.restart()
        taken.append(stage.run() or "")
        return "the zombie's"

    stage.acts[0].effect = slow
    stage.tell(calls(call("Act", n=1)), COMPLETE)
    job_id = stage.submit()
    assert run_slice(old, None) == job_id
    assert taken == [job_id]
    assert stage.results(job_id) == [INTERRUPTED, "Accepted. The job is complete."]
    assert stage.job(job_id).state == "succeeded"


def test_a_job_that_kills_its_workers_ends(stage: Stage) -> None:
    """A poison job never loops: after five deaths in a row it has failed, with its reason."""
    stage.acts[1].effect = dies_at(1)
    stage.tell(calls(call("Again", n=1)))
    job_id = stage.submit()
    for attempt in range(1, 6):
        stage.crash()
        stage.sweep()
        assert stage.row(job_id)["attempt"] == attempt
        stage.restart()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "attempts_exhausted")
    assert stage.endpoint.calls() == 1
