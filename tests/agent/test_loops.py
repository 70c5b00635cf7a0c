"""Agents that go round in circles are warned once and then stopped, with a reason of their own."""

from __future__ import annotations

from itertools import count

import pytest

from tests.agent.stage import COMPLETE, Line, Stage, call, calls, go
from tests.strict_endpoint import Call, Reply
from worker.loops import STOP_AFTER, WARN_AFTER

A, B, C = (calls(call("Act", n=n)) for n in (1, 2, 3))
WORDS = "You are going round in circles"


def warnings(stage: Stage, job_id: str) -> list[str]:
    return [gap for gap in stage.gaps(job_id) if WORDS in gap]


@pytest.mark.parametrize(
    ("circle", "told"),
    [
        ([A], "the same call of Act with the same result, 15 times in a row"),
        ([A, B], "the same calls of Act in turn with the same results, for 15 steps"),
        ([A, B, C], "the same calls of Act in turn with the same results, for 15 steps"),
        ([calls(call("Bash", command="exit 3"))], "the same call of Bash with the same result, 15 times in a row"),
        ([calls(call("Nothing"))], "the same call of Nothing with the same result, 15 times in a row"),
        ([Reply("thinking", (Call("Act", '{"n": "x"'),))], "the same call of Act with the same result, 15 times in a row"),
    ],
    ids=["A", "AB", "ABC", "failing", "unknown tool", "bad arguments"],
)  # fmt: skip
def test_a_circle_is_warned_of_once_then_stopped(stage: Stage, circle: list[Line], told: str) -> None:
    """The same call with the same result, or a few in turn: ten steps, one warning, five more, the end."""
    lines = (circle * 15)[: WARN_AFTER + STOP_AFTER]
    job_id = stage.play(*lines)
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("failed", "loop")
    assert job.reason_text == f"its agent went round in circles: {told}"
    assert len(warnings(stage, job_id)) == 1
    assert stage.endpoint.calls() == WARN_AFTER + STOP_AFTER
    assert WORDS in str(stage.endpoint.requests[WARN_AFTER].messages[-1]["content"])
    assert WORDS not in str(stage.endpoint.requests[WARN_AFTER - 1].messages)


def test_a_warning_that_is_heeded_ends_it(stage: Stage) -> None:
    job_id = stage.play(*[A] * 11, B, *[A] * 9, COMPLETE)
    assert stage.job(job_id).state == "succeeded"
    assert len(warnings(stage, job_id)) == 1


def test_a_new_circle_is_warned_of_anew(stage: Stage) -> None:
    job_id = stage.play(*[A] * 11, *[B] * 11, COMPLETE)
    assert stage.job(job_id).state == "succeeded"
    assert len(warnings(stage, job_id)) == 2


def test_polling_whose_result_changes_is_fine(stage: Stage) -> None:
    """Looking forty times how far something is, and each time it is further."""
    numbers = count()
    stage.acts[0].effect = lambda _context, _arguments: f"{next(numbers)} %"
    job_id = stage.play(*[A] * 40, COMPLETE)
    assert stage.job(job_id).state == "succeeded"
    assert warnings(stage, job_id) == []


def test_a_person_s_word_begins_the_count_anew(stage: Stage) -> None:
    """A comment in the middle is something new: what follows is no longer the same circle."""
    said: list[str] = []

    def effect(*_: object) -> None:
        if len(stage.acts[0].runs) == 8:
            stage.comment(said[0], "look once more")

    stage.acts[0].effect = effect
    stage.tell(*[A] * 17, COMPLETE)
    said.append(stage.submit())
    stage.run()
    assert stage.job(said[0]).state == "succeeded"
    assert warnings(stage, said[0]) == []


def test_the_count_survives_slices_and_restarts(stage: Stage) -> None:
    """What is counted in memory starts anew with each slice, and a loop never ends: it is seen from the rows."""
    stage.restart(slice_steps=4)
    stage.tell(*[A] * (WARN_AFTER + STOP_AFTER))
    job_id = stage.submit()
    for _ in range(4):
        stage.run()
        stage.restart(slice_steps=4)
    assert (stage.job(job_id).state, stage.job(job_id).reason) == ("failed", "loop")
    assert len(warnings(stage, job_id)) == 1


def test_after_a_retry_it_reads_why_and_may_go_on(stage: Stage) -> None:
    """A retry that fails at once on the same old rows would be none."""
    job_id = stage.play(*[A] * (WARN_AFTER + STOP_AFTER))
    stage.retry(job_id)
    stage.tell(A, go("COMPLETE", "another way"))
    stage.run()
    assert stage.job(job_id).result == "another way"
    assert "The job was stopped here because it went round in circles" in str(
        stage.endpoint.requests[-2].messages[-1]
    )
