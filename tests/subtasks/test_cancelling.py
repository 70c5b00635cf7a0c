"""A cancelled parent takes its children along, even if its canceller dies on the way; a retry, a death, a late child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs import lifecycle
from jobs.errors import DatabaseUnavailable
from storage.subtasks import insert_child_if_run_owns
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.strict_endpoint import Answer, ChatRequest
from tests.subtasks.family import PARENT, WAIT, Family, spawn


def three_levels(stage: Stage, family: Family) -> tuple[str, str, str, str]:
    """A waiting parent with a waiting child, which has a child of its own, and with a queued one."""
    parent = family.begin(spawn("Middle.", piece=PARENT), spawn("Other."))
    middle, other = family.child(parent, 0), family.child(parent, 1)
    family.run(middle, calls(spawn("Lower.")), WAIT)
    return parent, middle, family.child(middle, 0), other


def states(stage: Stage, *jobs: str) -> list[str]:
    return [stage.job(job).state for job in jobs]


def test_all_levels_are_cancelled(stage: Stage, family: Family) -> None:
    everyone = three_levels(stage, family)
    assert stage.cancel(everyone[0]).state == "cancelled"
    assert states(stage, *everyone) == ["cancelled"] * 4
    rows = [stage.row(job) for job in everyone]
    assert [(row["children_open"], row["cascade_pending"]) for row in rows] == [(0, False)] * 4
    assert stage.events(everyone[0], "subtasks_done") == []  # a cancelled job is not woken
    assert stage.run() is None


@pytest.mark.parametrize("reached", range(2))
@pytest.mark.parametrize("before", ["unfinished_children", "end_cascade"])
def test_a_canceller_that_dies_on_the_way(
    stage: Stage, family: Family, monkeypatch: pytest.MonkeyPatch, before: str, reached: int
) -> None:
    """After the parent's own transaction, after a child's, after all of a level: the sweep reaches the others."""
    everyone = three_levels(stage, family)
    real: Callable[..., Any] = getattr(lifecycle, before)
    passed: list[str] = []

    def die(*arguments: Any) -> Any:
        if len(passed) == reached:
            raise PowerCut
        passed.append(before)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, before, die)
        with pytest.raises(PowerCut):
            stage.cancel(everyone[0])
    assert stage.job(everyone[0]).state == "cancelled"
    assert stage.row(everyone[0])["cascade_pending"]
    stage.sweep()
    assert states(stage, *everyone) == ["cancelled"] * 4
    assert not any(stage.row(job)["cascade_pending"] for job in everyone)


def test_a_running_child_stops_its_tool(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn())
    child = family.child(parent, 0)
    stage.tell(calls(call("Act", n=1)))

    def cancel_parent(*_: object) -> None:
        stage.cancel(parent)
        assert stage.row(child)["cancel_requested"]
        stage.look()

    stage.acts[0].effect = cancel_parent
    stage.run()
    assert states(stage, parent, child) == ["cancelled", "cancelled"]
    assert stage.row(parent)["children_open"] == 0


def test_a_running_parent_that_is_cancelled_begins_no_more(stage: Stage, family: Family) -> None:
    """The children of a running parent are cancelled at once, and it cannot begin another on its way out."""
    ids: list[str] = []

    def cancel_then_spawn(_request: ChatRequest) -> Answer:
        stage.cancel(ids[0])
        assert family.states(ids[0]) == ["cancelled"]
        return calls(spawn("Late."))

    stage.tell(calls(spawn()), cancel_then_spawn)
    ids.append(stage.submit(piece=PARENT))
    stage.run()
    [parent] = ids
    assert stage.job(parent).state == "cancelled"
    assert family.states(parent) == ["cancelled"]
    stage.sweep()
    assert not stage.row(parent)["cascade_pending"]


def test_a_dead_parent_that_was_to_be_cancelled(stage: Stage, family: Family) -> None:
    """Its run died with the request unheard: the sweep cancels it, and its children."""
    ids: list[str] = []

    def cancel_and_die(*_: object) -> None:
        stage.cancel(ids[0])
        raise PowerCut

    stage.acts[0].effect = cancel_and_die
    stage.tell(calls(spawn(), call("Act", n=1)))
    ids.append(stage.submit(piece=PARENT))
    stage.crash()
    stage.sweep()
    assert stage.job(ids[0]).state == "cancelled"
    assert family.states(ids[0]) == ["cancelled"]


def test_a_person_cancels_the_last_child(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn())
    stage.cancel(family.child(parent, 0))
    assert stage.job(parent).state == "queued"
    family.run(parent, COMPLETE)
    assert "1 cancelled" in family.told(parent)


def test_a_child_that_kills_its_workers_ends_and_wakes_its_parent(stage: Stage, family: Family) -> None:
    """Attempts exhausted: the sweep's own transaction wakes the parent."""
    stage.restart(max_attempts=2)
    parent = family.begin(spawn())
    child = family.child(parent, 0)

    def die(*_: object) -> None:
        raise PowerCut

    stage.acts[0].effect = die
    stage.tell(calls(call("Act", n=1)))
    stage.crash()
    stage.sweep()
    assert states(stage, parent, child) == ["waiting_subtasks", "queued"]
    stage.tell(calls(call("Act", n=2)))
    stage.crash()
    stage.sweep()
    assert states(stage, parent, child) == ["queued", "failed"]
    family.run(parent, COMPLETE)
    assert "attempts_exhausted: its worker died 2 times in a row" in family.told(parent)


def test_a_child_that_fails_inside_sostenuto_wakes_its_parent(
    stage: Stage, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = family.begin(spawn())

    def broken(*_: object) -> None:
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("worker.agent.unanswered", broken)
        stage.run()
    assert stage.job(parent).state == "queued"
    family.run(parent, COMPLETE)
    assert "internal_error: ValueError: broken" in family.told(parent)


def test_a_cancelled_parent_that_is_retried_shows_its_children_as_they_are(
    stage: Stage, family: Family
) -> None:
    parent = family.begin(spawn())
    stage.cancel(parent)
    stage.retry(parent)
    assert family.states(parent) == ["cancelled"]
    family.run(parent, COMPLETE)
    assert "All subtasks have ended: 1 cancelled." in family.told(parent)


def test_a_retried_child_is_waited_for_again(stage: Stage, family: Family) -> None:
    """Also if the parent has been woken already, and has not looked yet."""
    parent = family.begin(spawn())
    child = family.child(parent, 0)
    family.run(child, go("ABORT", "no"))
    assert stage.job(parent).state == "queued"
    stage.retry(child)
    assert stage.job(parent).children_open == 1
    family.run(parent)
    assert stage.job(parent).state == "waiting_subtasks"
    family.run(child, COMPLETE)
    family.run(parent, COMPLETE)
    assert "1 succeeded" in family.told(parent)
    assert len(stage.events(parent, "subtasks_done")) == 2


def test_a_retried_child_of_a_cancelled_parent_is_left_alone(stage: Stage, family: Family) -> None:
    """It counts for its parent, which is not woken, and the sweep does not cancel it again."""
    parent = family.begin(spawn())
    child = family.child(parent, 0)
    stage.cancel(parent)
    stage.retry(child)
    stage.sweep()
    stage.cancel(parent)
    assert (stage.job(child).state, stage.row(parent)["children_open"]) == ("queued", 1)
    family.run(child, COMPLETE)
    assert (stage.job(parent).state, stage.row(parent)["children_open"]) == ("cancelled", 0)


def test_a_parent_that_ended_otherwise_leaves_its_children_running(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn(), then=COMPLETE)
    assert (stage.job(parent).state, stage.job(parent).children_open) == ("succeeded", 1)
    family.run(family.child(parent, 0), COMPLETE)
    assert (stage.job(parent).state, stage.job(parent).children_open) == ("succeeded", 0)


def test_a_database_that_fails_while_a_child_begins(
    stage: Stage, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was committed: the run stops, and the next one repeats the call. One child."""

    def commit_and_fail(*arguments: Any, **more: Any) -> None:
        insert_child_if_run_owns(*arguments, **more)
        raise DatabaseUnavailable("cut")

    stage.tell(calls(spawn()))
    parent = stage.submit(piece=PARENT)
    with monkeypatch.context() as patch:
        patch.setattr("jobs.subtasks.insert_child_if_run_owns", commit_and_fail)
        stage.run()
    assert stage.results(parent) == []
    [child] = family.children(parent)
    assert stage.workspace(child["id"]).exists()
    stage.expire()
    stage.sweep()
    stage.restart()
    family.run(child["id"], COMPLETE)
    family.run(parent, WAIT, COMPLETE)
    assert stage.job(parent).state == "succeeded"
    assert len(family.children(parent)) == 1
    assert child["id"] in stage.results(parent)[0]
