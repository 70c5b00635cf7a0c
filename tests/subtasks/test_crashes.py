"""Real worker processes with one slot each: no deadlock, and a death at every moment of a family's life."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.workspace import workspace_path
from storage.subtasks import list_children
from tests.crash.bench import APPEND, CrashBench, died_by_kill
from tests.strict_endpoint import ChatRequest, Reply
from tests.strict_endpoint.minds import Call

PIECE = """
name: family
description: Begins subtasks and waits for them.
initial_movement: work
movements:
  - name: work
    edit: true
    persona: Works.
    instruction: Do the work.
    allowed_tools: ["*"]
    rules: [{condition: done, next: COMPLETE}, {condition: parts, next: WAIT_SUBTASKS}]
"""

# Where the first worker dies: as a child begins (before and after its commit), as the parent parks, in a child's
# model call, at the last child's end, and when its outputs were copied but the parent was not told.
SUBTASK_POINTS = (
    "subtask.committing",
    "subtask.committing:2",
    "subtask.committed",
    "subtask.committed:2",
    "end.committing",
    "end.committed",
    "model.replied:3",
    "end.committing:5",
    "end.committed:5",
    "result.committing:8",
    "result.committed:8",
)


def transition(next_step: str, summary: str) -> Call:
    return Call("transition", {"next_step": next_step, "summary": summary})


def spawn(instruction: str) -> Call:
    return Call("spawn_subtask", {"instruction": instruction, "piece": "family"})


def mind(request: ChatRequest) -> Reply:
    """Jobs named Parent begin two parts; one named Top begins a Parent."""
    task = str(request.messages[1]["content"]).rpartition("## Task\n")[2]
    if task.startswith("Top"):
        began: tuple[Call, ...] = (spawn("Parent below."),)
    elif task.startswith("Parent"):
        began = (Call("Bash", {"command": APPEND}), spawn("Part one."), spawn("Part two."))
    else:
        write = Call("Write", {"path": "output/report.txt", "content": task})
        told = transition("COMPLETE", f"{task} is done")
        return Reply(calls=((Call("Bash", {"command": APPEND}),), (write,), (told,))[request.replies])
    waits = transition("WAIT_SUBTASKS", "for the parts")
    return Reply(calls=(began, (waits,), (transition("COMPLETE", "all parts are there"),))[request.replies])


def start(bench: CrashBench, instruction: str) -> str:
    folder = bench.installation.settings.pieces_dir
    assert folder is not None
    folder.mkdir(exist_ok=True)
    (folder / "family.yaml").write_text(PIECE)
    bench.endpoint.mind = mind
    return submit(bench.installation, SubmitRequest(instruction, piece="family"), "local").job.id


def worker_with_one_slot(bench: CrashBench, crash_at: str | None = None) -> Any:
    armed = {} if crash_at is None else {"SOSTENUTO_CRASH_POINT": crash_at}
    return bench.commands("--concurrency", "1", env=bench.env(**armed))


def children(bench: CrashBench, job_id: str) -> list[str]:
    return [str(row["id"]) for row in list_children(bench.installation.db, job_id)]


def assert_whole(bench: CrashBench, parent: str) -> None:
    """Two children, each done once; the parent was told once, and has their files."""
    assert bench.view(parent).state == State.SUCCEEDED
    parts = children(bench, parent)
    assert [bench.view(part).title for part in parts] == ["Part one.", "Part two."]
    for number, part in enumerate(parts, 1):
        bench.assert_sound(part)
        assert bench.effects(part) == 1
        folder = workspace_path(bench.installation.settings.data_dir, parent) / "input" / "subtasks"
        assert (folder / f"{number}-{part[-8:]}" / "report.txt").read_text() == bench.view(part).title
    bench.assert_sound(parent)
    assert bench.effects(parent) == 1
    told = [m.content or "" for m in bench.messages(parent) if (m.content or "").startswith("All subtasks")]
    assert len(told) == 1
    assert "2 succeeded" in told[0]


def test_three_levels_on_one_slot(bench: CrashBench) -> None:
    """If waiting held a worker, nobody would be left for the children."""
    top = start(bench, "Top.")
    worker_with_one_slot(bench)
    assert bench.wait_ended(top).state == State.SUCCEEDED
    [parent] = children(bench, top)
    assert_whole(bench, parent)


@pytest.mark.parametrize("point", SUBTASK_POINTS)
def test_a_worker_of_a_family_dies_at(point: str, bench: CrashBench) -> None:
    parent = start(bench, "Parent.")
    died_by_kill(worker_with_one_slot(bench, crash_at=point))
    worker_with_one_slot(bench)
    bench.wait_ended(parent)
    assert_whole(bench, parent)
