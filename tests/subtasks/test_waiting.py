"""A parent waits for all its children without a worker, and is shown how each of them ended."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.reasons import Reason
from jobs.states import Event, State, target
from storage import parents
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.strict_endpoint import Answer, ChatRequest
from tests.subtasks.family import CHILD, NO_KEY, PARENT, WAIT, Family, done, spawn
from worker.endings import Ending, end


def test_three_parts_of_which_one_fails(stage: Stage, family: Family) -> None:
    """A failed child is reported like the others, with its reason; outputs are in the parent's input/."""
    parent = family.begin(spawn("First part.\nMore."), spawn("Second part."), spawn("Third part."))
    job = stage.job(parent)
    assert (job.state, job.reason, job.worker) == ("waiting_subtasks", "subtasks", None)
    assert job.reason_text == "waits for 3 of 3 subtasks"
    assert stage.process.live.all() == []
    assert stage.call_states(parent)[-1] == "parked"
    first, second, third = (family.child(parent, number) for number in range(3))
    write = calls(call("Write", path="output/deep/report.md", content="the first"))
    family.run(first, write, done("The first is done."))
    assert stage.job(parent).reason_text == "waits for 2 of 3 subtasks"
    family.run(second, NO_KEY)
    family.run(third, go("ABORT", "It cannot be done."))
    job = stage.job(parent)
    assert (job.state, job.reason, job.children_open, job.children_total) == ("queued", "subtasks_done", 0, 3)

    seen: list[ChatRequest] = []

    def look(request: ChatRequest) -> Answer:
        seen.append(request)
        return COMPLETE

    family.run(parent, look)

    assert stage.job(parent).state == "succeeded"
    told = family.told(parent)
    assert seen[0].messages[-1]["content"] == told
    assert told.startswith("All subtasks have ended: 1 succeeded, 1 failed, 1 aborted.")
    folder = f"input/subtasks/1-{first[-8:]}"
    for expected in (
        f"1. SUCCEEDED — First part. (job {first})\nIts files: 1 in {folder}/\nResult: The first is done.",
        f"2. FAILED — Second part. (job {second})\nIt left no files.\nWhy: authentication: ",
        f"3. ABORTED — Third part. (job {third})\nIt left no files.\nWhy: It cannot be done.",
    ):
        assert expected in told
    assert (stage.workspace(parent) / folder / "deep" / "report.md").read_text() == "the first"
    assert [m["role"] for m in seen[0].messages][-4:] == ["tool", "tool", "assistant", "tool"]


def test_the_words_of_the_stores_are_those_of_the_table() -> None:
    assert target(State(parents.WAITING), Event(parents.WOKEN)) == State(parents.GOES_ON)
    assert target(State(parents.PAUSED), Event(parents.WOKEN)) == State(parents.PAUSED)
    assert State(parents.CANCELLED) is target(State.QUEUED, Event.CANCEL)
    assert Reason(parents.WOKEN) is Reason.SUBTASKS_DONE


def test_a_file_that_is_not_there_makes_no_child(stage: Stage, family: Family) -> None:
    """A clear error, nothing begun, and so nothing to wait for."""
    parent = stage.play(calls(spawn(files=["output/b.txt"])), WAIT, COMPLETE, piece=PARENT)
    assert family.children(parent) == []
    assert stage.results(parent)[:2] == [
        "Error: 'output/b.txt' does not exist",
        "Not done: this job has no subtasks to wait for.",
    ]
    assert sorted(folder.name for folder in (stage.folder / "workspaces").iterdir()) == [parent]


def test_a_child_is_a_job_with_files_of_its_parent(stage: Stage, family: Family) -> None:
    stage.tell(
        calls(call("Write", path="output/b.txt", content="b")),
        calls(spawn("Look at both.", files=["input/data/a.csv", "/workspace/output/b.txt"])),
        WAIT,
    )
    labels = {"task_type": "issue", "task_identifier": "7", "repository": "r", "user": "u"}
    parent = stage.submit(
        piece=PARENT, priority=5, model="another-model", files={"data/a.csv": b"1,2\n"}, **labels
    )
    stage.run()
    [child] = family.children(parent)
    assert child["parent_id"] == parent
    kept = ("owner", "priority", "model", "task_type", "repository", "user")
    assert [child[name] for name in kept] == ["local", 5, "another-model", "issue", "r", "u"]
    assert (child["task_identifier"], child["depth"], child["piece"]) == (None, 1, CHILD)
    files = stage.workspace(child["id"]) / "input"
    assert (files / "data" / "a.csv").read_bytes() == b"1,2\n"
    assert (files / "b.txt").read_text() == "b"
    assert stage.row(child["id"])["woken_at"] > 0
    assert stage.events(parent, "subtask") == [{"job": child["id"], "title": "Look at both."}]


def test_children_that_ended_before_are_not_waited_for(stage: Stage, family: Family) -> None:
    """The last child ends while the model writes its WAIT_SUBTASKS: the results are there at once."""
    ids: list[str] = []

    def cancel_child_then_wait(_request: ChatRequest) -> Answer:
        stage.cancel(family.child(ids[0], 0))
        return WAIT

    stage.tell(calls(spawn()), cancel_child_then_wait, COMPLETE)
    ids.append(stage.submit(piece=PARENT))
    stage.run()
    [parent] = ids
    assert stage.job(parent).state == "succeeded"
    assert "1. CANCELLED — A part." in family.told(parent)
    assert len(stage.runs(parent)) == 1


def test_a_child_that_ends_between_the_look_and_the_commit(
    stage: Stage, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race that check-then-update loses: the guard is in the parking commit itself."""

    def end_late(job: Any, *arguments: Any, **more: Any) -> Ending:
        for child in family.children(stage.process.live.all()[0].ref.job_id):
            if child["state"] == "queued":
                stage.cancel(child["id"])
        return end(job, *arguments, **more)

    monkeypatch.setattr("worker.decisions.end", end_late)
    stage.tell(calls(spawn()), WAIT, COMPLETE)
    parent = stage.submit(piece=PARENT)
    stage.run()
    assert stage.job(parent).state == "succeeded"
    assert "1 cancelled" in family.told(parent)


def test_a_comment_that_came_before_the_wait_is_read_first(stage: Stage, family: Family) -> None:
    ids: list[str] = []

    def wait(_request: ChatRequest) -> Answer:
        stage.comment(ids[0], "hurry")
        return WAIT

    stage.tell(calls(spawn()), wait, WAIT)
    ids.append(stage.submit(piece=PARENT))
    stage.run()
    [parent] = ids
    assert stage.results(parent)[1].startswith("Not accepted: there are unread comments.")
    assert stage.job(parent).state == "waiting_subtasks"
    stage.comment(parent, "and another")  # while it waits: shown after the results
    family.run(family.child(parent, 0), COMPLETE)
    family.run(parent, COMPLETE)
    assert [gap.rpartition(": ")[2] for gap in stage.gaps(parent)] == ["hurry", "and another"]


def test_siblings_of_the_wait_run_first(stage: Stage, family: Family) -> None:
    """Spawning and waiting in one reply, in either order."""
    wait = call("transition", next_step="WAIT_SUBTASKS", summary="wait")
    parent = stage.play(calls(wait, spawn("One."), call("Act", n=1), spawn("Two.")), piece=PARENT)
    assert stage.job(parent).state == "waiting_subtasks"
    assert stage.call_states(parent) == ["parked", "done", "done", "done"]
    stage.restart()
    for number in range(2):
        family.run(family.child(parent, number), COMPLETE)
    family.run(parent, COMPLETE)
    assert len(stage.acts[0].runs) == 1
    assert stage.job(parent).state == "succeeded"


def test_two_levels_each_wait_without_a_worker(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn("Middle.", piece=PARENT))
    middle = family.child(parent, 0)
    family.run(middle, calls(spawn("Lower.")), WAIT)
    lower = family.child(middle, 0)
    assert [stage.job(job).state for job in (parent, middle, lower)] == ["waiting_subtasks"] * 2 + ["queued"]
    family.run(lower, calls(call("Write", path="output/x", content="x")), done("low"))
    family.run(middle, calls(call("Bash", command="cp -r input/subtasks output/below")), done("mid"))
    family.run(parent, COMPLETE)
    copied = stage.workspace(parent) / "input" / "subtasks" / f"1-{middle[-8:]}" / "below"
    assert (copied / f"1-{lower[-8:]}" / "x").read_text() == "x"
    assert stage.row(lower)["depth"] == 2


def test_a_pause_does_not_cascade_and_keeps_the_childrens_ends(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn())
    assert stage.pause(parent).state == "paused"
    child = family.child(parent, 0)
    family.run(child, COMPLETE)
    job = stage.job(parent)
    assert (job.state, job.children_open, stage.row(parent)["resume_state"]) == ("paused", 0, "queued")
    assert len(stage.events(parent, "subtasks_done")) == 1
    assert stage.run() is None
    assert stage.resume(parent).state == "queued"
    family.run(parent, COMPLETE)
    assert "1 succeeded" in family.told(parent)


def test_a_pause_that_ends_first_goes_back_to_waiting(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn())
    stage.pause(parent)
    job = stage.resume(parent)
    assert (job.state, job.reason_text) == ("waiting_subtasks", "waits for 1 of 1 subtasks")
    family.run(family.child(parent, 0), COMPLETE)
    assert stage.job(parent).state == "queued"


def test_a_pause_asked_for_while_the_wait_was_written(stage: Stage, family: Family) -> None:
    ids: list[str] = []

    def wait(_request: ChatRequest) -> Answer:
        stage.pause(ids[0])
        return WAIT

    stage.tell(calls(spawn()), wait)
    ids.append(stage.submit(piece=PARENT))
    stage.run()
    [parent] = ids
    assert stage.job(parent).state == "paused"
    family.run(family.child(parent, 0), COMPLETE)
    assert stage.resume(parent).state == "queued"


def test_a_second_wait_shows_all_and_copies_only_what_is_new(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn("One."))
    one = family.child(parent, 0)
    family.run(one, calls(call("Write", path="output/f", content="one")), COMPLETE)
    first = stage.workspace(parent) / "input" / "subtasks" / f"1-{one[-8:]}"
    family.run(parent, calls(spawn("Two.")), WAIT)
    inode = (first / "f").stat().st_ino
    two = family.child(parent, 1)
    family.run(two, calls(call("Write", path="output/f", content="two")), COMPLETE)
    family.run(parent, COMPLETE)
    assert (first / "f").stat().st_ino == inode
    assert (first.parent / f"2-{two[-8:]}" / "f").read_text() == "two"
    assert "All subtasks have ended: 2 succeeded." in family.told(parent)


def test_a_child_that_asks_or_is_paused_is_waited_for(stage: Stage, family: Family) -> None:
    parent = family.begin(spawn())
    child = family.child(parent, 0)
    family.run(child, go("ASK", "Which?"))
    assert stage.job(parent).state == "waiting_subtasks"
    stage.reply(child, "blue")
    family.run(child, COMPLETE)
    assert stage.job(parent).state == "queued"


def test_side_effects_before_two_questions_are_never_replayed(
    stage: Stage, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Append, ask, answer, crash, ask, answer: a resume that replays from the start would append again."""
    append = calls(call("Bash", command="echo line >> output/effects.txt"))
    parent = family.begin(spawn())
    child = family.child(parent, 0)
    family.run(child, append, go("ASK", "First?"))
    stage.reply(child, "yes")
    with monkeypatch.context() as patch:

        def die(*_: object, **__: object) -> None:
            raise PowerCut

        patch.setattr("worker.decisions.tool_message", die)
        stage.crash()
    stage.sweep()
    stage.restart()
    family.run(child, go("ASK", "Second?"))
    stage.reply(child, "yes again")
    family.run(child, COMPLETE)
    assert (stage.workspace(child) / "output" / "effects.txt").read_text() == "line\n"
    family.run(parent, COMPLETE)
    assert stage.job(parent).state == "succeeded"


def test_the_tool_is_offered_only_where_a_piece_waits(stage: Stage, family: Family) -> None:
    names: list[list[str]] = []

    def look(request: ChatRequest) -> Answer:
        names.append([tool["function"]["name"] for tool in request.tools])
        return COMPLETE

    stage.play(look, piece=CHILD)
    stage.play(look, piece=PARENT)
    rules = [{"condition": "c", "next": name} for name in ("COMPLETE", "WAIT_SUBTASKS")]
    quiet = {"name": "work", "allowed_tools": ["Read"], "rules": rules}
    stage.piece("quiet", quiet)
    stage.play(look, piece="quiet")
    assert ["spawn_subtask" in offered for offered in names] == [False, True, False]
