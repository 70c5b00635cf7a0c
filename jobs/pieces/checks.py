"""Checks across the movements of a piece: every name leads somewhere, every movement is reached and can end."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.documents import Place
from jobs.errors import did_you_mean
from jobs.pieces.model import ABORT, ASK, COMPLETE, ENDINGS, WAIT_SUBTASKS, Movement, Piece

Problem = tuple[Place, str]


def problems(piece: Piece) -> Iterator[Problem]:
    """Each problem with its place in the data. The graph is looked at only where all names are known."""
    yield from [*_twice(piece)] or [*_names(piece), *_returns(piece)] or _graph(piece)


def _twice(piece: Piece) -> Iterator[Problem]:
    known = [movement.name for movement in piece.movements]
    for index, name in enumerate(known):
        if name in known[:index]:
            yield ("movements", index, "name"), f"the movement {name!r} is defined twice"


def _names(piece: Piece) -> Iterator[Problem]:
    known = [movement.name for movement in piece.movements]
    for place, name in _references(piece):
        if name not in known and name not in ENDINGS:
            near = did_you_mean(name, [*known, *ENDINGS])
            yield place, f"there is no movement {name!r}" + (f"; {near}" if near else "")


def _references(piece: Piece) -> Iterator[tuple[Place, str]]:
    yield ("initial_movement",), piece.initial_movement
    for index, movement in enumerate(piece.movements):
        here: Place = ("movements", index)
        for rule_index, rule in enumerate(movement.rules):
            yield (*here, "rules", rule_index, "next"), rule.next
        if movement.default_next:
            yield (*here, "default_next"), movement.default_next
        if movement.verify:
            yield (*here, "verify"), movement.verify


def _returns(piece: Piece) -> Iterator[Problem]:
    """ASK and WAIT_SUBTASKS come back to the movement: neither can be where it is pushed at its end."""
    for index, movement in enumerate(piece.movements):
        if movement.default_next in {ASK, WAIT_SUBTASKS}:
            problem = f"default_next may be a movement, {COMPLETE} or {ABORT}, not {movement.default_next}"
            yield ("movements", index, "default_next"), problem
        if movement.verify == movement.name:
            yield ("movements", index, "verify"), "a movement cannot verify itself"


def _graph(piece: Piece) -> Iterator[Problem]:
    reached = _reachable(piece, piece.initial_movement)
    if COMPLETE not in reached:
        yield ("initial_movement",), f"no way leads from {piece.initial_movement!r} to {COMPLETE}"
        return
    for index, movement in enumerate(piece.movements):
        if movement.name not in reached:
            yield ("movements", index, "name"), f"the movement {movement.name!r} is never reached"
        elif not {COMPLETE, ABORT} & _reachable(piece, movement.name):
            yield (
                ("movements", index, "name"),
                f"no way leads from {movement.name!r} to {COMPLETE} or {ABORT}",
            )


def _reachable(piece: Piece, start: str) -> set[str]:
    """Every movement and ending that can follow `start`, itself included."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _edges(piece.movement(name)) if name not in ENDINGS else ()
    return reached


def _edges(movement: Movement) -> tuple[str, ...]:
    return (*movement.next_steps, movement.verify) if movement.verify else movement.next_steps
