"""Each built-in piece with a real model: whatever OPENAI_BASE_URL names. Only by `make real-model-test`.

What a model writes is its own; these tests ask only for what any capable one must get right.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pieces_run.runner import CALC, TESTS, Runner
from tests.servers.workers import CommandFactory

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(3600)]
# Read when the module is collected: while tests run, the environment has no such names.
GIVEN = {
    name: value for name, value in os.environ.items() if name.startswith(("OPENAI_", "SOSTENUTO_")) and value
}
LIMITS = ["--max-steps", "80", "--max-time", "50m"]


@pytest.fixture
def runner(worker_process: CommandFactory, data_dir: Path, tmp_path: Path) -> Runner:
    assert "OPENAI_BASE_URL" in GIVEN, (
        "set OPENAI_BASE_URL, and OPENAI_API_KEY and SOSTENUTO_MODEL as it wants them"
    )
    kept = {name: value for name, value in GIVEN.items() if name != "SOSTENUTO_DATA_DIR"}
    return Runner(worker_process, data_dir, tmp_path, kept, patience=3300)


def test_general(runner: Runner) -> None:
    numbers = "\n".join(str(number) for number in range(1, 101))
    run = runner.run(
        "general",
        "Write the sum of input/numbers.txt into output/sum.txt, as digits only.",
        {"numbers.txt": numbers},
        LIMITS,
    )
    assert run.text("output/sum.txt").strip() == "5050"
    assert run.visits[:2] == ["work", "verify"]


def test_research_report(runner: Runner) -> None:
    wells = "north well, depth: 31 m, dug 1902\nsouth well, depth: 20 m, dug 1911\n"
    run = runner.run(
        "research-report", "Write a short report: which well is deeper?", {"wells.txt": wells}, LIMITS
    )
    assert "31" in run.text("output/report.md")
    assert run.visits[0] == "gather"
    assert "verify" in run.visits


def test_code_change(runner: Runner) -> None:
    run = runner.run(
        "code-change",
        "mean([]) must return 0, with a test for it.",
        {"calc.py": CALC, "test_calc.py": TESTS},
        LIMITS,
    )
    assert run.text("input/calc.py") == CALC
    assert "\n+" in run.text("output/change.patch")
    assert {"plan", "edit", "test", "review"} <= set(run.visits)


def test_ask_first(runner: Runner) -> None:
    instruction = (
        "Write a one-line greeting for a customer into output/greeting.txt. Ask me first how it should sound."
    )
    run = runner.run(
        "ask-first", instruction, {}, LIMITS, reply="In French, please; all else as you think best."
    )
    assert run.text("output/greeting.txt").strip()
    assert run.visits[0] == "clarify"


def test_fan_out(runner: Runner) -> None:
    files = {f"{name}.txt": "x\n" * lines for name, lines in (("a", 3), ("b", 4), ("c", 5))}
    instruction = (
        "Count the lines of each file in input/, each in a subtask of its own, and write the sum of all lines into "
        "output/total.txt, as digits only."
    )
    run = runner.run("fan-out", instruction, files, LIMITS)
    assert run.text("output/total.txt").strip() == "12"
    assert run.job["children_total"] >= 2
