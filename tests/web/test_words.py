"""The page's words: both languages say the same things, and templates use no others."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import jobs.web
from jobs.reasons import WORDINGS
from jobs.states import Event, State
from jobs.web.conversation import _LINES
from jobs.web.words import LANGUAGES, preferred, table

TEMPLATES = Path(jobs.web.__file__).parent / "templates"


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_keys_and_fill_in_the_same() -> None:
    english, japanese = table("en"), table("ja")
    reasons = {key for key in japanese if key.startswith("reason.")}  # in English, those of the command line
    assert japanese.keys() - reasons == {key for key in english if not key.startswith("reason.")}
    for key, text in english.items():
        assert _fields(japanese[key]) == _fields(text), key
    for reason, wording in WORDINGS.items():
        assert _fields(japanese[f"reason.{reason}"]) == _fields(wording.text), reason


def test_every_state_and_line_has_words() -> None:
    for language in LANGUAGES:
        words = table(language)
        assert {f"state.{state}" for state in State} <= words.keys()
        assert {f"line.{kind}" for kind in _LINES} <= words.keys()


def test_every_line_of_a_history_has_words() -> None:
    """Transitions, and whatever else the code notes of a job."""
    root = Path(jobs.web.__file__).parents[2]
    kinds = {str(event) for event in Event} | {
        kind
        for package in ("jobs", "worker", "storage")
        for file in (root / package).rglob("*.py")
        for kind in re.findall(r'NewEvent\(\s*"([a-z_]+)"', file.read_text())
    }
    assert len(kinds) > 35
    for language in LANGUAGES:
        assert {f"event.{kind}" for kind in kinds} - table(language).keys() == set()


def test_templates_use_only_known_words() -> None:
    known = table("en")
    used = [
        key
        for file in TEMPLATES.glob("*.html")
        for key in re.findall(r"\bt\('([a-z_.]+)'[,)]", file.read_text())
    ]
    assert len(used) > 80
    assert [key for key in used if key not in known] == []


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"), ("ja", "ja"), ("ja-JP,en;q=0.8", "ja"), ("en-GB,ja;q=0.9", "en"), ("fr,ja;q=0.4", "ja"),
        ("de", "en"), ("en;q=0.1,ja;q=0.2", "ja"), ("ja;q=x", "en"), ("ja;q=0", "en"), ("*" * 5000, "en"),
    ],
)  # fmt: skip
def test_the_language_that_a_browser_prefers(header: str, language: str) -> None:
    assert preferred(header) == language
