"""Text as both databases and every client can take it back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from storage.text import clean_json, clean_text

ANY_TEXT = st.text(
    st.characters(codec=None, exclude_categories=())
    | st.sampled_from(["\0", "\ud83d", "\ude00", "\udfff", "😀"])
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(ANY_TEXT)
def test_clean_text_is_storable_everywhere(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    cleaned.encode()  # raises on a lone surrogate
    assert clean_text(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_without_fault_is_the_same(text: str) -> None:
    assert clean_text(text) == text


def test_nothing_else_is_touched() -> None:
    assert clean_text("a\0b") == "a␀b"
    assert clean_text("x\ud83dy") == "x\ufffdy"
    assert clean_text("\ude00\ud83d") == "\ufffd\ufffd"  # two halves in the wrong order are no pair
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("日本\0\udc00語\r\n\x1b") == "日本␀\ufffd語\r\n\x1b"


@given(ANY_JSON)
def test_clean_json_is_strict_json_and_stays_as_it_is(value: Any) -> None:
    cleaned = clean_json(value)
    written = json.dumps(cleaned, ensure_ascii=False, allow_nan=False)
    written.encode()
    assert "\\u0000" not in written
    assert json.loads(written) == cleaned
    assert clean_json(cleaned) == cleaned


def test_clean_json_cleans_keys_and_all_depths() -> None:
    dirty = {"k\0": [{"\ud800": ("\0", 1, None, True, 2.5)}], "nan": [float("nan"), float("-inf")]}
    assert clean_json(dirty) == {"k␀": [{"\ufffd": ["␀", 1, None, True, 2.5]}], "nan": [None, None]}
