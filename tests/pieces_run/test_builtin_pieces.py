"""Each built-in piece from submit to result: the real command line, a real worker, real tools, a scripted model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.pieces import Library
from tests.pieces_run.runner import CALC, TESTS, Run, Runner
from tests.servers.workers import CommandFactory

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def runner(worker_process: CommandFactory, data_dir: Path, tmp_path: Path) -> Runner:
    return Runner(worker_process, data_dir, tmp_path, {}, patience=120)


def run_scripted(
    runner: Runner, piece: str, instruction: str, files: Mapping[str, str], reply: str | None = None
) -> Run:
    return runner.run(piece, instruction, files, ["--model", f"scripted:{SCRIPTS / piece}.yaml"], reply)


def test_general_mends_what_its_verification_found(runner: Runner) -> None:
    run = run_scripted(
        runner, "general", "Add up input/numbers.txt into output/sum.txt.", {"numbers.txt": "1\n2\n39\n"}
    )
    assert run.visits == ["work", "verify", "work", "verify"]
    assert run.text("output/sum.txt") == "42\n"
    assert run.job["result"] == "The sum is 42, in output/sum.txt."
    assert {todo["status"] for todo in run.notes["todos"]} == {"completed"}
    assert [lesson["movement"] for lesson in run.notes["lessons"]] == run.visits[:3]


def test_research_report_checks_its_statements_against_the_evidence(runner: Runner) -> None:
    wells = "north well, depth: 31 m\nsouth well, depth: 20 m\n"
    run = run_scripted(runner, "research-report", "Which well is deeper?", {"wells.md": wells})
    assert run.visits == ["gather", "write", "verify", "write", "verify"]
    assert run.text("output/report.md").startswith("The north well is deeper: 31 m [E1],")
    assert run.job["result"] == "The north well is deeper: 31 m."
    [checklist] = run.notes["checklists"]
    assert [(item["done"], item["note"]) for item in checklist["items"]] == [
        (True, "as in E1"),
        (True, "as in E2"),
    ]
    assert json.loads(run.text("logs/checklists/statements.json")) == checklist
    assert [plan["plan_type"] for plan in run.notes["plans"]] == ["research"]
    assert run.errors == []


def test_code_change_goes_back_until_the_tests_pass(runner: Runner) -> None:
    files = {"calc.py": CALC, "test_calc.py": TESTS}
    run = run_scripted(runner, "code-change", "mean([]) must be 0.", files)
    assert run.visits == ["plan", "edit", "test", "edit", "test", "review"], run.errors
    assert "+        return 0\n" in run.text("output/change.patch")
    assert "+    def test_empty(self):\n" in run.text("output/change.patch")
    assert run.text("input/calc.py") == CALC
    [demands] = run.notes["checklists"]
    assert all(item["done"] for item in demands["items"])
    assert run.job["result"].startswith("mean([]) is now 0;")


def test_ask_first_asks_before_it_works(runner: Runner) -> None:
    run = run_scripted(runner, "ask-first", "Write a greeting.", {}, reply="formal, please")
    assert run.visits == ["clarify", "work"]
    assert run.text("output/greeting.txt") == "Dear Sir or Madam\n"
    assert run.notes["checklists"][0]["items"][0]["text"] == "formal, please"


def test_fan_out_merges_what_its_subtasks_left(runner: Runner) -> None:
    run = run_scripted(runner, "fan-out", "Count all lines.", {"a.txt": "1\n2\n", "b.txt": "1\n2\n3\n"})
    assert run.visits == ["split", "merge"]
    assert run.text("output/total.txt") == "2 5\n"
    assert [child["state"] for child in run.job["children"]] == ["succeeded"] * 2


def test_every_built_in_piece_is_run_here() -> None:
    ran = {name.removeprefix("test_").split("_")[0] for name in globals() if name.startswith("test_")}
    pieces = {entry.name for entry in Library(None).entries() if entry.origin == "built-in"}
    assert {name.split("-")[0] for name in pieces} <= ran
    assert {path.stem for path in SCRIPTS.glob("*.yaml")} == pieces
