"""A piece as a picture: every movement and every way is there, inside of the picture, and nothing lies on another."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pieces import Library, Piece
from jobs.pieces.library import PieceEntry
from jobs.pieces.model import ENDINGS
from jobs.web.graph import BOX_HEIGHT, BOX_WIDTH, CHIP_HEIGHT, CHIP_WIDTH, Graph, graph_of
from jobs.web.templating import environment
from jobs.web.words import Words

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def _piece(ways: list[tuple[int, str]], count: int) -> Piece:
    movements = [
        {
            "name": f"m{number}",
            "persona": "p",
            "instruction": "i",
            "allowed_tools": [],
            "edit": number % 2 == 0,
            "rules": [{"condition": f"<i>{to}</i>", "next": to} for start, to in ways if start == number],
            "default_next": "m0" if number % 3 == 0 else None,
        }
        for number in range(count)
    ]
    return Piece.model_validate(
        {"name": "p", "description": "d", "initial_movement": "m0", "movements": movements}
    )


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    count = draw(st.integers(1, 50))
    steps = [*(f"m{number}" for number in range(count)), *ENDINGS]
    ways = draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.sampled_from(steps)), max_size=120, unique=True)
    )
    return _piece(ways, count)


def _drawn(graph: Graph) -> str:
    module = environment().get_template("graph.html").module
    return str(module.piece_graph(graph, Words("en"), "g"))  # type: ignore[attr-defined]  # the template's macro


def _check(piece: Piece) -> None:
    graph = graph_of(piece, piece.movements[-1].name, [piece.initial_movement])
    assert sorted(box.name for box in graph.boxes) == sorted(movement.name for movement in piece.movements)
    assert graph.boxes[0].name == piece.initial_movement
    for movement in piece.movements:
        box = next(box for box in graph.boxes if box.name == movement.name)
        assert {chip.end for chip in box.chips} == set(movement.next_steps) & set(ENDINGS)
        assert {way.to for way in graph.ways if way.start == movement.name} == set(movement.next_steps)
    inner = {(way.start, way.to) for way in graph.ways if way.to not in ENDINGS}
    assert len(graph.arrows) == len(inner)
    areas = [(box.x, box.y, BOX_WIDTH, BOX_HEIGHT) for box in graph.boxes]
    areas += [(chip.x, chip.y, CHIP_WIDTH, CHIP_HEIGHT) for box in graph.boxes for chip in box.chips]
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(areas, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    assert all(x >= 0 and x + w <= graph.width and y >= 0 and y + h <= graph.height for x, y, w, h in areas)
    for arrow in graph.arrows:
        numbers = [float(number) for number in NUMBER.findall(arrow.path)]
        assert all(-0.01 <= number <= max(graph.width, graph.height) for number in numbers), arrow


@given(pieces())
def test_any_piece_has_a_whole_picture(piece: Piece) -> None:
    _check(piece)


@pytest.mark.parametrize("entry", Library(None).entries(), ids=lambda entry: entry.name)
def test_the_built_in_pieces_have_theirs(entry: PieceEntry) -> None:
    piece = entry.piece
    assert piece is not None
    _check(piece)
    html = _drawn(graph_of(piece))
    assert html.count('<g class="movement') == len(piece.movements)
    assert "style=" not in html


def test_conditions_are_text() -> None:
    html = _drawn(graph_of(_piece([(0, "COMPLETE"), (1, "m0")], 2), "m0"))
    assert "&lt;i&gt;COMPLETE&lt;/i&gt;" in html
    assert "<i>" not in html
    assert 'class="movement current"' in html
