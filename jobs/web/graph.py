"""A piece as a picture: where its movements and the ways between them are drawn. The template `graph.html` draws them.

Movements stand below each other, in the order in which they are reached; a way to the next one is a straight arrow, every
other way an arc at the left. Where a movement can end is told beside it. Pure arithmetic, any piece has a picture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from jobs.pieces.model import ENDINGS, Movement, Piece

BOX_WIDTH, BOX_HEIGHT, ROW = 190, 44, 74
LANE, TOP = 16, 8
CHIP_GAP, CHIP_WIDTH, CHIP_HEIGHT = 12, 96, 22
MOST_NAME = 24  # characters of a name that fit its box
MOST_LANES = 12


@dataclass(frozen=True, slots=True)
class Chip:
    """A way out of the piece, beside the movement that has it. `end` is COMPLETE, ASK, ABORT or WAIT_SUBTASKS."""

    end: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Box:
    """A movement. `mark`: current, seen, or nothing."""

    name: str
    shown: str
    edits: bool
    mark: str
    x: float
    y: float
    chips: tuple[Chip, ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way between movements: an SVG path and its head. `kind`: forward, back, or else (default_next only)."""

    kind: str
    path: str
    head: str


@dataclass(frozen=True, slots=True)
class Way:
    """A way in words. `condition` None: `default_next`; `findings`: what a verification found goes along."""

    start: str
    to: str
    condition: str | None
    findings: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The whole picture, in units of its view box, and the same in words."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    ways: tuple[Way, ...]


def graph_of(piece: Piece, current: str | None = None, seen: Collection[str] = ()) -> Graph:
    """The picture of a piece; `current` is the movement that a job is in, `seen` those it has been in."""
    order = _order(piece)
    rows = {name: number for number, name in enumerate(order)}
    ways = tuple(_ways(piece, order))
    inner = {(way.start, way.to): way for way in ways if way.to not in ENDINGS}
    lanes = _lanes([pair for pair in inner if rows[pair[1]] != rows[pair[0]] + 1], rows)
    left = (max(lanes.values(), default=-1) + 1) * LANE + TOP
    boxes = tuple(_box(piece.movement(name), rows[name], left, current, seen) for name in order)
    arrows = tuple(_arrow(way, rows, left, lanes.get(pair)) for pair, way in inner.items())
    width = max([left + BOX_WIDTH, *(chip.x + CHIP_WIDTH for box in boxes for chip in box.chips)]) + 2
    return Graph(width, TOP + (len(order) - 1) * ROW + BOX_HEIGHT + TOP, boxes, arrows, ways)


def _order(piece: Piece) -> list[str]:
    """The movements as they are reached from the first one, each before what only it leads to; the others last."""
    names = {movement.name for movement in piece.movements}
    found: list[str] = []
    waiting = [piece.initial_movement]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += [step for step in piece.movement(name).next_steps if step in names]
    return found + [movement.name for movement in piece.movements if movement.name not in found]


def _ways(piece: Piece, order: list[str]) -> Iterator[Way]:
    for movement in map(piece.movement, order):
        for rule in movement.rules:
            yield Way(movement.name, rule.next, rule.condition, rule.next == movement.verify)
        if movement.default_next and movement.default_next not in {rule.next for rule in movement.rules}:
            yield Way(movement.name, movement.default_next, None, findings=False)


def _lanes(pairs: list[tuple[str, str]], rows: dict[str, int]) -> dict[tuple[str, str], int]:
    """A lane for each arc, so that those side by side do not lie on each other; short ones are the innermost."""
    taken: list[list[tuple[int, int]]] = []
    found: dict[tuple[str, str], int] = {}
    for pair in sorted(pairs, key=lambda pair: abs(rows[pair[0]] - rows[pair[1]])):
        span = (min(rows[pair[0]], rows[pair[1]]), max(rows[pair[0]], rows[pair[1]]))
        lane = next(
            (
                number
                for number, spans in enumerate(taken)
                if all(span[1] < a or b < span[0] for a, b in spans)
            ),
            len(taken),
        )
        lane = min(lane, MOST_LANES - 1)
        if lane == len(taken):
            taken.append([])
        taken[lane].append(span)
        found[pair] = lane
    return found


def _box(movement: Movement, row: int, left: float, current: str | None, seen: Collection[str]) -> Box:
    name = movement.name
    mark = "current" if name == current else "seen" if name in seen else ""
    y = TOP + row * ROW
    ends = [step for step in movement.next_steps if step in ENDINGS]
    chips = tuple(_chip(end, number, left, y) for number, end in enumerate(ends))
    shown = name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
    return Box(name, shown, movement.edit, mark, left, y, chips)


def _chip(end: str, number: int, left: float, y: float) -> Chip:
    """Two below each other, then further to the right."""
    x = left + BOX_WIDTH + CHIP_GAP + (number // 2) * (CHIP_WIDTH + 6)
    return Chip(end, x, y + (number % 2) * (CHIP_HEIGHT + 2) - 1)


def _arrow(way: Way, rows: dict[str, int], left: float, lane: int | None) -> Arrow:
    start, end = rows[way.start], rows[way.to]
    kind = "else" if way.condition is None else "forward" if end > start else "back"
    if lane is None:
        x = left + BOX_WIDTH / 2
        top, bottom = TOP + start * ROW + BOX_HEIGHT, TOP + end * ROW
        return Arrow(kind, f"M{x:g} {top:g}V{bottom - 6:g}", f"M{x:g} {bottom:g}l-5 -8h10z")
    x = left - (lane + 1) * LANE + 4
    shift = 8 + 2 * lane
    out = TOP + start * ROW + BOX_HEIGHT / 2 + (shift if end >= start else -shift) / 2
    back = TOP + end * ROW + BOX_HEIGHT / 2 + (-shift if end > start else shift) / 2
    if start == end:
        out, back = TOP + start * ROW + BOX_HEIGHT - 8, TOP + start * ROW + 8
    bend = min(8.0, abs(back - out) / 2)
    turn = bend if back > out else -bend
    path = (
        f"M{left:g} {out:g}H{x + bend:g}Q{x:g} {out:g} {x:g} {out + turn:g}"
        f"V{back - turn:g}Q{x:g} {back:g} {x + bend:g} {back:g}H{left - 6:g}"
    )
    return Arrow(kind, path, f"M{left:g} {back:g}l-8 -5v10z")
