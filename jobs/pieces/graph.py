"""A piece as a Mermaid diagram: its movements, and where each can go."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.pieces.model import ABORT, ASK, COMPLETE, WAIT_SUBTASKS, Movement, Piece

_ENDS = {COMPLETE: "done", ABORT: "given up"}
_WAITS = {ASK: "asks a person", WAIT_SUBTASKS: "waits for its subtasks"}
_UNSAFE = str.maketrans(
    {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", ";": "#59;", "`": "'", "\n": " "}
)


def mermaid(piece: Piece) -> str:
    """A flowchart for any Mermaid renderer.

    Solid arrows are rules with their conditions, dashed ones `default_next`; `findings` marks where those of a
    verification go.
    """
    names = {movement.name: f"m{number}" for number, movement in enumerate(piece.movements)}
    lines = ["flowchart TD", f"    start([start]) --> {names[piece.initial_movement]}"]
    lines += [f'    {names[movement.name]}["{_box(movement)}"]' for movement in piece.movements]
    used = {step for movement in piece.movements for step in movement.next_steps}
    lines += [f"    {step}([{meaning}])" for step, meaning in (_ENDS | _WAITS).items() if step in used]
    for movement in piece.movements:
        lines += [f"    {names[movement.name]} {arrow}" for arrow in _arrows(movement, names)]
    return "\n".join(lines)


def _box(movement: Movement) -> str:
    return movement.name + ("" if movement.edit else "<br>reads only")


def _arrows(movement: Movement, names: dict[str, str]) -> Iterator[str]:
    for rule in movement.rules:
        condition = rule.condition.translate(_UNSAFE)
        text = f"findings: {condition}" if movement.verify == rule.next else condition
        arrow = "<-->" if rule.next in _WAITS else "-->"
        yield f'{arrow}|"{text}"| {names.get(rule.next, rule.next)}'
    if movement.default_next and movement.default_next not in {rule.next for rule in movement.rules}:
        yield f'-.->|"else"| {names.get(movement.default_next, movement.default_next)}'
