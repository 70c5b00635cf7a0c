"""How deep, how many, how much: what an agent may give away, and the clear errors where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.stage import COMPLETE, Stage, call, calls, go
from tests.subtasks.family import PARENT, WAIT, Family, spawn


def refusals(stage: Stage, *wanted: Any, **submitted: Any) -> list[str]:
    """What an agent is told that wants these subtasks, one reply each."""
    replies = [calls(one) for one in wanted]
    job_id = stage.play(*replies, COMPLETE, piece=PARENT, **submitted)
    return stage.results(job_id)[:-1]


def test_fan_out(stage: Stage, family: Family) -> None:
    stage.restart(max_subtasks=2)
    told = refusals(stage, spawn("1"), spawn("2"), spawn("3"))
    assert [text.startswith("Subtask ") for text in told] == [True, True, False]
    assert "has begun 2 subtasks, which is the most. Do the rest yourself" in told[2]
    assert len(list((stage.folder / "workspaces").iterdir())) == 3


def test_depth(stage: Stage, family: Family) -> None:
    stage.restart(max_subtask_depth=1)
    parent = family.begin(spawn(piece=PARENT))
    child = family.child(parent, 0)
    family.run(child, calls(spawn()), COMPLETE)
    assert stage.results(child)[0] == (
        "Error: this job is a subtask of level 1, the last that is allowed. Do it yourself"
    )
    assert family.children(child) == []


def test_no_depth_at_all(stage: Stage, family: Family) -> None:
    stage.restart(max_subtask_depth=0)
    assert "turned off" in refusals(stage, spawn())[0]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (spawn(piece="prat"), "there is no piece 'prat'. Did you mean 'part'?"),
        (spawn(" \n"), "the instruction is empty"),
        (call("spawn_subtask"), "'instruction' is a required property"),
        (spawn(files=["../secret"]), "contains '..'"),
        (spawn(files=["output"]), "is a folder"),
        (spawn(files=["input/a.txt", "output/a.txt"]), "two files are named 'a.txt'"),
        (spawn(files=["output/link"]), "symbolic link"),
        (spawn(files=["input/large.bin"]), "the limit is 1 KiB a file"),
    ],
)
def test_clear_errors(stage: Stage, family: Family, wanted: Any, told: str) -> None:
    """Nothing is begun, no folder is left, and the agent reads what to do about it."""
    plant = call("Bash", command="echo b > output/a.txt; ln -s /etc/passwd output/link")
    files = {"a.txt": b"a", "large.bin": b"x" * 1025}
    stage.tell(calls(plant), calls(wanted), COMPLETE)
    job_id = stage.submit(piece=PARENT, files=files)
    stage.restart(max_file_bytes=1024)
    stage.run()
    [_, said, _] = stage.results(job_id)
    assert said.startswith("Error: ")
    assert told in said
    assert stage.job(job_id).children_total == 0
    assert len(list((stage.folder / "workspaces").iterdir())) == 1


def test_each_child_gets_half_of_what_is_left(stage: Stage, family: Family) -> None:
    """No sum of shares exceeds the parent's limit, and something is left for its own work."""
    budget = {"max_steps": 41, "max_cost": 8.0}
    parent = family.begin(spawn("1"), spawn("2"), spawn("3"), budget=budget)
    children = family.children(parent)
    # One step is the parent's own, at the time when it begins them.
    assert [child["max_steps"] for child in children] == [20, 10, 5]
    assert [child["max_cost"] for child in children] == [4.0, 2.0, 1.0]
    assert [child["max_tokens"] for child in children] == [None] * 3
    assert "Its share of your budget: 20 steps, 4 cost." in stage.results(parent)[0]


def test_what_a_child_did_not_use_comes_back(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn("1"), budget={"max_steps": 41})
    family.run(family.child(parent, 0), COMPLETE)
    family.run(parent, calls(spawn("2")), WAIT)
    # 41, less 3 steps of the parent and 1 of its first child.
    assert [child["max_steps"] for child in family.children(parent)] == [20, 18]


def test_grandchildren_spend_of_the_same_budget(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn("1", piece=PARENT), budget={"max_steps": 41})
    middle = family.child(parent, 0)
    family.run(middle, calls(spawn("low")), go("COMPLETE", "left it running"))
    assert family.children(middle)[0]["max_steps"] == 9
    family.run(family.child(middle, 0), COMPLETE)
    family.run(parent, calls(spawn("2")), WAIT)
    # 41, less 3 of the parent, 2 of its child and 1 of its grandchild.
    assert family.children(parent)[1]["max_steps"] == 17


def test_too_little_is_left(stage: Stage, family: Family) -> None:
    """3 steps: one is spent, one is given away, one is needed for the next reply."""
    job_id = stage.play(calls(spawn("1")), calls(spawn("2")), piece=PARENT, budget={"max_steps": 3})
    [begun, refused] = stage.results(job_id)
    assert "Its share of your budget: 1 steps." in begun
    assert refused.startswith("Error: too little is left of this job's budget of 3 steps for a subtask")
    assert stage.job(job_id).reason == "budget_exceeded"


def test_a_child_with_a_used_up_share_pauses_and_can_go_on(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn("1"), budget={"max_steps": 5})
    child = family.child(parent, 0)
    act = calls(call("Act", n=1))
    family.run(child, act, act)
    job = stage.job(child)
    assert (job.state, job.reason) == ("paused", "budget_exceeded")
    assert stage.job(parent).state == "waiting_subtasks"
    stage.resume(child, max_steps=5)
    family.run(child, COMPLETE)
    # Together they have spent 5 of the parent's 5 steps.
    stage.tell()
    stage.run()
    job = stage.job(parent)
    assert (job.state, job.reason) == ("paused", "budget_exceeded")
