"""Pieces: errors with line and column, the graph checks, the frozen form, and how one is chosen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.errors import InvalidPiece, NotFound, UnknownPiece
from jobs.pieces import Library, Movement, Piece, check_piece, freeze, load_piece, thaw
from jobs.pieces.graph import mermaid
from jobs.pieces.library import BUILTIN_DIR
from jobs.pieces.model import piece_schema

GOOD = """\
name: review
description: Reviews a change.
initial_movement: read
triggers:
  keywords: [review, pull request, レビュー]
movements:
  - name: read
    persona: You read code.
    instruction: Read it.
    allowed_tools: [Read, "mcp__*"]
    rules:
      - condition: understood
        next: judge
  - name: judge
    edit: true
    persona: You judge.
    instruction: Judge it.
    allowed_tools: [Read, Write]
    ask: {resume: rebuild, deadline: 2h, default_answer: go on}
    verify: read
    rules:
      - {condition: done, next: COMPLETE}
      - {condition: unclear, next: ASK}
    default_next: ABORT
"""


def write(folder: Path, text: str, name: str = "review.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_piece_is_read_with_all_its_fields(tmp_path: Path) -> None:
    piece = load_piece(write(tmp_path, GOOD))
    assert (piece.name, piece.max_movements, piece.initial_movement) == ("review", 30, "read")
    judge = piece.movement("judge")
    assert judge.next_steps == ("COMPLETE", "ASK", "ABORT")
    assert (judge.ask.resume, judge.ask.deadline, judge.ask.default_answer) == ("rebuild", 7200, "go on")
    assert (judge.verify, judge.edit, piece.movement("read").edit) == ("read", True, False)


BROKEN = [
    (
        "initial_movement: read",
        "initial_movement: raed",
        ":3:1: there is no movement 'raed'; did you mean 'read'?",
    ),
    ("next: judge", "next: jugde", ":13:9: there is no movement 'jugde'; did you mean 'judge'?"),
    ("next: COMPLETE", "next: COMPLET", ":22:27: there is no movement 'COMPLET'; did you mean 'COMPLETE'?"),
    ("next: COMPLETE", "next: complete", ":22:27: there is no movement 'complete'; did you mean 'COMPLETE'?"),
    ("default_next: ABORT", "default_next: nowhere", ":24:5: there is no movement 'nowhere'"),
    (
        "default_next: ABORT",
        "default_next: ASK",
        ":24:5: default_next may be a movement, COMPLETE or ABORT, not ASK",
    ),
    ("verify: read", "verify: judge", ":20:5: a movement cannot verify itself"),
    ("verify: read", "verify: reed", ":20:5: there is no movement 'reed'; did you mean 'read'?"),
    ("name: judge", "name: read", ":14:5: the movement 'read' is defined twice"),
    ("next: judge", "next: COMPLETE", ":14:5: the movement 'judge' is never reached"),
    ("next: COMPLETE", "next: ABORT", ":3:1: no way leads from 'read' to COMPLETE"),
    ("persona: You judge.", "persna: You judge.", ":16:5: unknown key 'persna'; did you mean 'persona'?"),
    ("persona: You judge.", "", ":14:5: the key 'persona' is missing"),
    ("edit: true", "edit: perhaps", ":15:5: 'edit' should be a valid boolean"),
    ("allowed_tools: [Read, Write]", "allowed_tools: Read", ":18:5: 'allowed_tools' should be a valid list"),
    ("[Read, Write]", "[Read, 5]", ":18:27: item 2 of 'allowed_tools' should be a valid string"),
    ("resume: rebuild", "resume: later", ":19:11: 'resume' should be 'continue' or 'rebuild'"),
    ("deadline: 2h", "deadline: soon", ":19:28: 'soon' is not a span of time; allowed are 90, 45s"),
    (", default_answer: go on", "", ":19:5: a deadline and a default_answer go together"),
    ("name: review", "name: Review", ":1:1: 'name' should match pattern '^[a-z0-9-]+$'"),
    ("name: review", "name: other", ":1:1: the name is 'other', but the file is called review.yaml"),
    ("edit: true", "name: judge", ":15:5: the key 'name' is given twice"),
    ("    edit: true", "\tedit: true", ":15:1: found character '\\t' that cannot start any token"),
    ("movements:", "movements: []\nrest:", ":6:1: 'movements' should have at least 1 item"),
    (
        "name: review",
        "name: !!python/object:os.system review",
        ":1:7: the tag 'tag:yaml.org,2002:python/object",
    ),
    ("name: review", "name: *nowhere", ":1:7: found undefined alias 'nowhere'"),
    ("name: review", "? [a]\n: b\nname: review", ":1:3: a key must be plain text"),
]


@pytest.mark.parametrize(
    ("old", "new", "expected"), BROKEN, ids=[new.strip() or f"no {old}" for old, new, _ in BROKEN]
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = write(tmp_path, changed(old, new))
    with pytest.raises(InvalidPiece) as caught:
        load_piece(path)
    assert str(caught.value).startswith(f"{path}{expected}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_movement_that_can_never_end_is_found(tmp_path: Path) -> None:
    extra = """\
      - {condition: stuck, next: trap}
  - name: trap
    persona: p
    instruction: i
    allowed_tools: []
    rules: [{condition: again, next: trap}]
"""
    text = changed(
        "      - {condition: done, next: COMPLETE}\n", f"      - {{condition: done, next: COMPLETE}}\n{extra}"
    )
    text = text.replace("      - {condition: unclear, next: ASK}\n    default_next: ABORT\n", "")
    with pytest.raises(InvalidPiece, match=r":24:5: no way leads from 'trap' to COMPLETE or ABORT"):
        load_piece(write(tmp_path, text))


def test_all_problems_come_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = changed("persona: You read code.", "persna: x").replace("edit: true", "edit: perhaps")
    piece, problems = check_piece(write(tmp_path, text))
    assert piece is None
    assert [problem.line for problem in problems] == [8, 15]


HOSTILE = {
    "billion laughs": "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 8)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
    "an alias to itself": "a: &a [*a]\n",
    "deep": "a: " + "[" * 5000 + "]" * 5000 + "\n",
    "large": "a: " + "x" * 300_000 + "\n",
    "control character": "a: \x07\n",
    "two documents": "a: 1\n---\na: 2\n",
    "number of a million digits": "a: " + "9" * 200_000 + "\n",
    "empty": "",
    "a list": "- a\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidPiece) as caught:
        load_piece(write(tmp_path, HOSTILE[name]))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "review.yaml"
    path.write_bytes(b"name: review\ndescription: \xff\n")
    with pytest.raises(InvalidPiece, match=r":2: the file is not UTF-8"):
        load_piece(path)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert load_piece(path).description == "Reviews a change."
    write(tmp_path, changed("Reviews a change.", "Reviews with care."))
    assert load_piece(path).description == "Reviews with care."


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_piece(tmp_path / "review.yaml")


def test_the_frozen_form_survives_json_and_names_every_default(tmp_path: Path) -> None:
    piece = load_piece(write(tmp_path, GOOD))
    frozen = json.loads(json.dumps(freeze(piece)))
    assert thaw(frozen) == piece
    assert frozen["movements"][0]["max_consecutive_revisits"] == 3


@pytest.mark.parametrize("damage", [{"format": 99}, {"format": None}, {"surprise": 1}, {"movements": "none"}])
def test_a_frozen_form_of_another_version_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    frozen = freeze(load_piece(write(tmp_path, GOOD)))
    with pytest.raises(InvalidPiece, match="the job's piece: "):
        thaw(frozen | damage)


def test_every_built_in_piece_is_valid() -> None:
    entries = Library(None).entries()
    assert "general" in [entry.name for entry in entries]
    assert [problem for entry in entries for problem in entry.problems] == []


def test_a_user_s_piece_hides_the_built_in_one(tmp_path: Path) -> None:
    write(tmp_path, changed("name: review", "name: general"), "general.yaml")
    library = Library(tmp_path)
    assert library.get("general").description == "Reviews a change."
    assert [entry.origin for entry in library.entries() if entry.name == "general"] == ["yours"]
    assert Library(None).path("general").parent == BUILTIN_DIR


@pytest.mark.parametrize("name", ["../general", "/etc/passwd", "", "General", "a\0b", "general.yaml"])
def test_a_name_never_leads_out_of_the_folders(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownPiece):
        Library(tmp_path).get(name)


def test_an_unknown_piece_suggests_the_nearest() -> None:
    with pytest.raises(UnknownPiece) as caught:
        Library(None).get("genral")
    assert caught.value.hint == "did you mean 'general'?"


CHOICES = [
    ("Please REVIEW this", "review", "keyword 'review' in the instruction"),
    ("a pull request to review", "review", "keyword 'pull request' in the instruction"),
    ("preview of reviews", "general", "no keyword of a piece in the instruction"),
    ("変更をレビューして", "review", "keyword 'レビュー' in the instruction"),
    ("", "general", "no keyword of a piece in the instruction"),
]


@pytest.mark.parametrize(("instruction", "piece", "reason"), CHOICES)
def test_a_keyword_chooses_the_piece_and_the_reason_is_told(
    tmp_path: Path, instruction: str, piece: str, reason: str
) -> None:
    write(tmp_path, GOOD)
    choice = Library(tmp_path).choose(None, instruction)
    assert (choice.piece.name, choice.reason) == (piece, reason)


def test_a_broken_piece_is_passed_over_but_not_silently(tmp_path: Path) -> None:
    write(tmp_path, changed("next: judge", "next: nowhere"))
    choice = Library(tmp_path).choose(None, "review it")
    assert choice.piece.name == "general"
    assert choice.reason.endswith("; passed over as invalid: review")
    with pytest.raises(InvalidPiece):
        Library(tmp_path).choose("review", "review it")


def test_a_dangling_link_is_no_piece(tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    assert "gone" not in Library(tmp_path).names()


def test_the_published_schema_is_the_model_s() -> None:
    """To renew it: sostenuto pieces schema > docs/piece.schema.json"""
    published = (Path(__file__).parents[2] / "docs" / "piece.schema.json").read_text(encoding="utf-8")
    assert json.loads(published) == piece_schema()


def test_the_documentation_s_example_is_a_valid_piece(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    assert load_piece(write(tmp_path, example, "bugfix.yaml")).movement("check").verify == "mend"


def test_the_documentation_s_other_examples(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text(encoding="utf-8")
    garden = text.split("```yaml\n")[2].split("```")[0]
    assert load_piece(write(tmp_path, garden, "garden.yaml")).movement("examine").verify == "draw"
    diagram = text.split("```mermaid\n")[1].split("```")[0]
    assert diagram.strip() == mermaid(Library(None).get("general"))
    for entry in Library(None).entries():
        assert entry.piece is not None
        shown = next(line for line in text.splitlines() if line.startswith(f"| `{entry.name}` |"))
        keywords = entry.piece.triggers.keywords if entry.piece.triggers else []
        assert all(word in keywords for word in re.findall(r'"([^"]+)"', shown))


def test_every_key_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text(encoding="utf-8")
    keys = [*Piece.model_fields, *Movement.model_fields]
    assert [key for key in keys if f"| `{key}" not in text] == []
