"""The built-in pieces: their prompts name tools that exist, their loops are bounded, their keywords choose well."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.checklists import PARAMETERS
from jobs.pieces import COMPLETE, Library, Piece
from jobs.pieces.graph import mermaid
from jobs.pieces.model import ENDINGS, Movement
from jobs.todos import TODO_WRITE
from tests.pieces.test_pieces import changed, write
from worker.note_tools import PLAN
from worker.subtask_tool import NAME as SPAWN
from worker.subtask_tool import spawn_may_be_used
from worker.tools.catalogue import standard_tools

PIECES = [entry.piece for entry in Library(None).entries() if entry.piece]
MOVEMENTS = [
    pytest.param(piece, movement, id=f"{piece.name}-{movement.name}")
    for piece in PIECES
    for movement in piece.movements
]
TOOLS = {tool.name for tool in standard_tools()} | {TODO_WRITE, PLAN, SPAWN, *PARAMETERS}
WORDS = re.compile(r"\b(?:todo_write|checklist_\w+|spawn_\w+|read_\w+|plan(?= \(plan_type))\b")


def allowed(movement: Movement, name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in movement.allowed_tools)


def prompts(movement: Movement) -> str:
    return "\n".join([movement.persona, movement.instruction, movement.output_contract or ""])


@pytest.mark.parametrize(("piece", "movement"), MOVEMENTS)
def test_prompts_name_tools_that_the_movement_has(piece: Piece, movement: Movement) -> None:
    """A prompt that asks for a tool that is not there makes a model try, fail and improvise."""
    for name in WORDS.findall(prompts(movement)):
        assert name in TOOLS, name
        assert allowed(movement, name), f"{name} is not allowed here"
    for glob in movement.allowed_tools:
        assert glob.startswith("mcp__") or any(fnmatchcase(name, glob) for name in TOOLS), glob
    if allowed(movement, SPAWN) and "*" not in movement.allowed_tools:
        assert spawn_may_be_used(piece, movement)
    if {"Write", "Edit"} & set(movement.allowed_tools):
        assert movement.edit


@pytest.mark.parametrize(("piece", "movement"), MOVEMENTS)
def test_prompts_name_steps_that_the_movement_may_take(piece: Piece, movement: Movement) -> None:
    steps = set(movement.next_steps)
    for name in set(re.findall(r"\b(COMPLETE|ASK|ABORT|WAIT_SUBTASKS)\b", prompts(movement))):
        assert name in steps, name
    names = {stage.name for stage in piece.movements}
    for name in re.findall(r"(?:[Gg]o on to|go back to|with `transition` to) (\w+)", prompts(movement)):
        assert name in names, name
        assert name in steps, name


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_every_piece_can_end_well_and_its_rounds_are_bounded(piece: Piece) -> None:
    """A verification that sends the work back for ever: bounded by the prompt, and by max_movements where it is not read."""
    assert any(COMPLETE in movement.next_steps for movement in piece.movements)
    assert len(piece.movements) < piece.max_movements <= 15
    for movement in piece.movements:
        if movement.verify and COMPLETE in movement.next_steps:
            assert "do not do so a third time" in " ".join(movement.instruction.split())
            assert movement.output_contract


@pytest.mark.parametrize(
    ("instruction", "piece"),
    [
        ("Please write a report on heat pumps.", "research-report"),
        ("再生可能エネルギーの調査レポートを書いて", "research-report"),
        ("Fix the bug in input/calc.py", "code-change"),
        ("このバグを修正してください", "code-change"),
        ("Write the invoice, but ask me first.", "ask-first"),
        ("Translate all chapters in parallel.", "fan-out"),
        ("Summarise input/report.pdf", "general"),
        ("What is a refactored bug report?", "general"),
        ("売上を集計して", "general"),
    ],
)
def test_the_keywords_choose_by_what_is_meant(instruction: str, piece: str) -> None:
    choice = Library(None).choose(None, instruction)
    assert choice.piece.name == piece
    assert choice.reason.startswith("no keyword" if piece == "general" else "keyword ")


def test_of_keywords_of_the_same_length_yours_decides(tmp_path: Path) -> None:
    write(tmp_path, changed("keywords: [review, pull request, レビュー]", "keywords: [in parallel]"))
    assert Library(tmp_path).choose(None, "do it in parallel").piece.name == "review"


def test_the_diagram_shows_every_way() -> None:
    """Boxes for movements, an arrow for each rule, dashed ones for default_next, findings marked."""
    for piece in PIECES:
        lines = mermaid(piece).splitlines()
        assert lines[0] == "flowchart TD"
        rules = sum(len(movement.rules) for movement in piece.movements)
        assert sum('|"' in line for line in lines) >= rules
        for movement in piece.movements:
            assert sum(f'["{movement.name}' in line for line in lines) == 1
            for step in set(movement.next_steps) & set(ENDINGS):
                assert any(line.startswith(f"    {step}([") for line in lines)
    general = mermaid(Library(None).get("general"))
    assert 'm1 -->|"findings: something is wrong or missing and can be mended"| m0' in general
    assert 'm0 <-->|"a decision is needed' in general


def test_a_condition_cannot_break_the_diagram(tmp_path: Path) -> None:
    text = changed(
        "condition: ", "condition: '\"]; x --> y <b> #'\n        next: COMPLETE\n      - condition: "
    )
    lines = mermaid(Library(write(tmp_path, text).parent).get("review")).splitlines()
    [odd] = [line for line in lines if "x --" in line]
    assert '#quot;]#59; x --#gt; y #lt;b#gt; #35;"|' in odd
    assert all(line.count('"') in (0, 2) for line in lines)


def test_rounds_are_described_in_order() -> None:
    """`general` ends in at most three rounds of work and verification, within its max_movements."""
    general = Library(None).get("general")
    rounds = ["work", "verify"] * 3
    assert all(after in general.movement(before).next_steps for before, after in pairwise(rounds))
    assert len(rounds) <= general.max_movements
