"""Plans, checklists and the copies in logs/: recorded once, replayed after a crash, mirrored without trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.checklists import MOST_CHECKLISTS, current_checklists
from jobs.notes import get_notes
from storage.crashpoints import CrashPoint
from storage.plans import list_plans
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.agent.test_movements import head, rules, two
from tests.strict_endpoint import Call

PLAN = Call("plan", r'{"plan_type": "initial", "plan_content": "first dig \ud83d\u0000, then plant"}')
CREATE = call("checklist_create", name="garden", items=["dig", "plant"])
TICK = call("checklist_tick", name="garden", item=1, note="one metre deep")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_plan_is_recorded_with_its_time(stage: Stage) -> None:
    job_id = stage.play(
        calls(PLAN), calls(call("plan", plan_type="revision", plan_content="plant first")), COMPLETE
    )
    first, second = list_plans(stage.doors.db, job_id)
    assert (first.plan_type, first.plan_content) == ("initial", "first dig �␀, then plant")
    results = [row for row in stage.messages(job_id) if row.tool_name == "plan"]
    assert [(p.seq, p.created_at) for p in (first, second)] == [(r.seq, r.created_at) for r in results]
    assert list_plans(stage.doors.db, job_id, after=first.seq) == [second]
    assert get_notes(stage.doors, job_id).as_dict()["plans"][1]["plan_content"] == "plant first"


def test_a_plan_that_is_none_is_not_recorded(stage: Stage) -> None:
    wrong = [
        call("plan", plan_type="x"),
        call("plan", plan_type="", plan_content="y"),
        call("plan", plan="z"),
    ]
    job_id = stage.play(calls(*wrong), COMPLETE)
    assert [result.startswith("Error: plan was not run") for result in stage.results(job_id)[:3]] == [
        True
    ] * 3
    assert list_plans(stage.doors.db, job_id) == []


@pytest.mark.parametrize("point", [CrashPoint.TOOL_ENDED, "result.committing", "result.committed"])
def test_a_plan_is_recorded_once_however_its_worker_died(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The plan and its call's result are one transaction: a crash around it neither loses nor doubles it."""
    left = [point]

    def dying(reached: str) -> None:
        if reached == point and left:
            left.clear()
            raise PowerCut

    stage.tell(calls(PLAN), COMPLETE)
    job_id = stage.submit()
    for module in ("worker.agent", "storage.checkpoints"):
        monkeypatch.setattr(f"{module}.crash_point", dying)
    stage.crash()
    assert left == []
    stage.restart()
    stage.sweep()
    stage.run()
    assert len(list_plans(stage.doors.db, job_id)) == 1
    assert stage.job(job_id).state == "succeeded"


def test_checklists_are_made_ticked_and_listed(stage: Stage) -> None:
    job_id = stage.play(
        calls(CREATE), calls(TICK), calls(call("checklist_list")), calls(call("checklist_list", name="garden")),
        calls(call("checklist_tick", name="garden", item=1, done=False)), COMPLETE,
    )  # fmt: skip
    made, ticked, every, one, unticked, _ = stage.results(job_id)
    assert made == "garden (0 of 2 done)\n1. [ ] dig\n2. [ ] plant"
    assert ticked == every == one == "garden (1 of 2 done)\n1. [x] dig (one metre deep)\n2. [ ] plant"
    assert unticked == "garden (0 of 2 done)\n1. [ ] dig (one metre deep)\n2. [ ] plant"
    mirror = json.loads((stage.workspace(job_id) / "logs/checklists/garden.json").read_text())
    assert mirror == current_checklists(stage.doors.db, job_id)["garden"].as_dict()
    assert mirror["items"][0] == {"number": 1, "text": "dig", "done": False, "note": "one metre deep"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (CREATE, "there is a checklist garden already"),
        (call("checklist_tick", name="house", item=1), "there is no checklist house; there are: garden"),
        (call("checklist_tick", name="garden", item=3), "has 2 items, none with the number 3"),
        (call("checklist_tick", name="garden", item=0), "was not run"),
        (call("checklist_create", name="../../x", items=["a"]), "was not run"),
        (call("checklist_list", name="house"), "there is no checklist house"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(stage: Stage, wrong: Any, told: str) -> None:
    job_id = stage.play(calls(CREATE, wrong), COMPLETE)
    assert told in stage.results(job_id)[1]
    assert stage.results(job_id)[1].startswith("Error: ")
    lists = current_checklists(stage.doors.db, job_id)
    assert [found.done for found in lists.values()] == [0]
    assert [path.name for path in (stage.workspace(job_id) / "logs/checklists").iterdir()] == ["garden.json"]


def test_checklists_are_bounded(stage: Stage) -> None:
    many = [call("checklist_create", name=f"n{n}", items=["x"]) for n in range(MOST_CHECKLISTS + 1)]
    job_id = stage.play(calls(*many), COMPLETE)
    assert "the most a job may have" in stage.results(job_id)[-2]


def test_the_next_movement_sees_the_checklists(stage: Stage) -> None:
    stage.play(calls(CREATE), calls(TICK), go("do", lessons="go on"), COMPLETE, piece=two(stage))
    assert head(stage.endpoint.requests[-1]).startswith(
        "## Lessons from earlier steps\n- plan: go on\n\n"
        "## Checklists\ngarden (1 of 2 done)\n1. [x] dig (one metre deep)\n2. [ ] plant\n\n## Now\n"
    )


def test_checklists_of_another_job_are_out_of_reach(stage: Stage) -> None:
    stage.play(calls(CREATE), COMPLETE)
    job_id = stage.play(calls(call("checklist_list")), COMPLETE)
    assert stage.results(job_id)[0] == "There are no checklists."


def test_lessons_and_progress_are_mirrored_line_by_line(stage: Stage) -> None:
    """One line a transition, the end included; a question on the way is progress, and no lesson."""
    job_id = stage.play(go("ASK", "Which?"), piece=two(stage))
    stage.reply(job_id, "this")
    stage.tell(go("do", "planned", lessons="mind the gap\nand the dog"), go("COMPLETE", "all done"))
    stage.run()
    logs = stage.workspace(job_id) / "logs"
    progress = lines_of(logs / "progress.jsonl")
    assert [(line["movement"], line["next"], line["summary"]) for line in progress] == [
        ("plan", "ASK", "Which?"),
        ("plan", "do", "planned"),
        ("do", "COMPLETE", "all done"),
    ]
    assert [line["lessons"] for line in lines_of(logs / "lessons.jsonl")] == ["mind the gap\nand the dog"]
    assert progress[0]["at"].endswith("Z")


def test_a_mirror_leads_nowhere_and_stops_nothing(stage: Stage, tmp_path: Path) -> None:
    """logs/ replaced by a link out of the workspace: nothing is written there, and the job goes on."""
    outside = tmp_path / "outside"
    outside.mkdir()

    def plant(context: Any, _arguments: Any) -> None:
        (context.workspace / "logs").rename(context.workspace / "old")
        (context.workspace / "logs").symlink_to(outside)

    stage.acts[0].effect = plant
    job_id = stage.play(calls(call("Act")), calls(CREATE), go("do"), COMPLETE, piece=two(stage))
    assert stage.job(job_id).state == "succeeded"
    assert list(outside.iterdir()) == []


def test_a_spoilt_mirror_is_mended_when_the_next_movement_begins(stage: Stage) -> None:
    def spoil(context: Any, _arguments: Any) -> None:
        (context.workspace / "logs/checklists/garden.json").write_text("{")

    stage.acts[0].effect = spoil
    job_id = stage.play(calls(CREATE, call("Act")), go("do"), COMPLETE, piece=two(stage))
    mirror = json.loads((stage.workspace(job_id) / "logs/checklists/garden.json").read_text())
    assert mirror["name"] == "garden"


def test_notes_obey_allowed_tools(stage: Stage) -> None:
    piece = stage.piece(
        "few", {"name": "work", "allowed_tools": ["checklist_*", "plan"], "rules": rules("COMPLETE")}
    )
    stage.play(COMPLETE, piece=piece)
    shown = [tool["function"]["name"] for tool in stage.endpoint.requests[0].tools]
    assert shown == [
        "checklist_create",
        "checklist_list",
        "checklist_tick",
        "plan",
        "read_comments",
        "recall",
        "transition",
    ]
