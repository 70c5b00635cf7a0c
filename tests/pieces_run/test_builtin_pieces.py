"""Each built-in piece from submit to result: the real command line, a real worker, real tools, a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.pieces import Library
from jobs.workspace import workspace_path
from tests.servers.workers import CommandFactory

SCRIPTS = Path(__file__).parent / "scripts"
CALC = "def mean(values):\n    return sum(values) / len(values)\n"
TESTS = """\
import unittest

from calc import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 3]), 2)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A job that has ended, as the command line and its workspace show it."""

    job: dict[str, Any]
    notes: dict[str, Any]
    workspace: Path
    visits: list[str]
    errors: list[str]

    def text(self, path: str) -> str:
        return (self.workspace / path).read_text()


Submit = Callable[..., Run]


@pytest.fixture
def submit(worker_process: CommandFactory, data_dir: Path, tmp_path: Path) -> Submit:
    worker = worker_process(env={"SOSTENUTO_ALLOW_UNSANDBOXED": "true"})
    worker.wait_for_log("is ready: queues")

    def command(*arguments: str, expect: int = 0) -> str:
        process = worker_process.run(*arguments)
        assert process.wait(120) == expect, process.log()
        return process.log()

    def ended(job_id: str, reply: str | None) -> dict[str, Any]:
        if reply is not None:
            command("watch", job_id)
            assert json.loads(command("show", job_id, "--json"))["state"] == "waiting_human"
            command("reply", job_id, reply)
        command("watch", job_id, "--exit-status")
        found: dict[str, Any] = json.loads(command("show", job_id, "--json"))
        return found

    def submit(piece: str, instruction: str, files: dict[str, str], reply: str | None = None) -> Run:
        given = []
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            given += ["--file", str(tmp_path / name)]
        model = f"scripted:{SCRIPTS / piece}.yaml"
        job_id = command("submit", instruction, "--piece", piece, "--model", model, *given).strip()
        job = ended(job_id, reply)
        messages = json.loads(command("transcript", job_id, "--full", "--json"))["messages"]
        return Run(
            job,
            json.loads(command("notes", job_id, "--json")),
            workspace_path(data_dir, job_id),
            [row["extra"]["movement"] for row in messages if row["role"] == "system"],
            [row["content"] for row in messages if row["is_error"]],
        )

    return submit


def test_general_mends_what_its_verification_found(submit: Submit) -> None:
    run = submit("general", "Add up input/numbers.txt into output/sum.txt.", {"numbers.txt": "1\n2\n39\n"})
    assert run.visits == ["work", "verify", "work", "verify"]
    assert run.text("output/sum.txt") == "42\n"
    assert run.job["result"] == "The sum is 42, in output/sum.txt."
    assert {todo["status"] for todo in run.notes["todos"]} == {"completed"}
    assert [lesson["movement"] for lesson in run.notes["lessons"]] == run.visits[:3]


def test_research_report_checks_its_statements_against_the_evidence(submit: Submit) -> None:
    wells = "north well, depth: 31 m\nsouth well, depth: 20 m\n"
    run = submit("research-report", "Which well is deeper?", {"wells.md": wells})
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


def test_code_change_goes_back_until_the_tests_pass(submit: Submit) -> None:
    files = {"calc.py": CALC, "test_calc.py": TESTS}
    run = submit("code-change", "mean([]) must be 0.", files)
    assert run.visits == ["plan", "edit", "test", "edit", "test", "review"], run.errors
    assert "+        return 0\n" in run.text("output/change.patch")
    assert "+    def test_empty(self):\n" in run.text("output/change.patch")
    assert run.text("input/calc.py") == CALC
    [demands] = run.notes["checklists"]
    assert all(item["done"] for item in demands["items"])
    assert run.job["result"].startswith("mean([]) is now 0;")


def test_ask_first_asks_before_it_works(submit: Submit) -> None:
    run = submit("ask-first", "Write a greeting.", {}, reply="formal, please")
    assert run.visits == ["clarify", "work"]
    assert run.text("output/greeting.txt") == "Dear Sir or Madam\n"
    assert run.notes["checklists"][0]["items"][0]["text"] == "formal, please"


def test_fan_out_merges_what_its_subtasks_left(submit: Submit) -> None:
    run = submit("fan-out", "Count all lines.", {"a.txt": "1\n2\n", "b.txt": "1\n2\n3\n"})
    assert run.visits == ["split", "merge"]
    assert run.text("output/total.txt") == "2 5\n"
    assert [child["state"] for child in run.job["children"]] == ["succeeded"] * 2


def test_every_built_in_piece_is_run_here() -> None:
    ran = {name.removeprefix("test_").split("_")[0] for name in globals() if name.startswith("test_")}
    pieces = {entry.name for entry in Library(None).entries() if entry.origin == "built-in"}
    assert {name.split("-")[0] for name in pieces} <= ran
    assert {path.stem for path in SCRIPTS.glob("*.yaml")} == pieces
