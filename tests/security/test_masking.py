"""Masking: exact values of secrets, their base64 and URL forms, also where a stream cuts them."""

from __future__ import annotations

import base64
import io
import itertools
import json
import logging
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.masking import MASK, StreamMask, holds_secret, mask, mask_logs, register_secrets
from storage.text import clean_json, clean_text

SECRET = 'sk-canary/+"ätzend&42?x'
register_secrets([SECRET])


def _core(encoded: str) -> str:
    return encoded.rstrip("=")[4:-4]


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET).lower(),
    ],
)
def test_every_written_form_is_masked(form: str) -> None:
    shown = mask(f"before {form} after {form}")
    assert holds_secret(form)
    assert not holds_secret(shown)
    assert shown.count(MASK) == 2
    assert "canary" not in shown


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_base64_is_masked_wherever_the_secret_stands_in_it(before: bytes, after: bytes) -> None:
    raw = before + SECRET.encode() + after
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        shown = mask(encoded.decode())
        assert MASK in shown
        # What is left holds at most bits of the two characters at the ends.
        assert len(shown) <= len(encoded) - (len(SECRET.encode()) * 8 // 6 - 2) + len(MASK)


@given(st.lists(st.integers(0, 200), max_size=8), st.binary(max_size=50), st.binary(max_size=50))
def test_a_stream_is_masked_wherever_it_is_cut(cuts: list[int], before: bytes, after: bytes) -> None:
    data = before + SECRET.encode() + after + base64.b64encode(SECRET.encode()) + before
    passed: list[bytes] = []
    stream = StreamMask(passed.append)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(places):
        stream.feed(data[start:end])
    stream.end()
    whole = b"".join(passed)
    assert b"canary" not in whole
    assert (
        whole
        == before + MASK.encode() + after + mask(base64.b64encode(SECRET.encode()).decode()).encode() + before
    )


def test_a_stream_without_secrets_is_passed_on_at_once() -> None:
    passed: list[bytes] = []
    stream = StreamMask(passed.append)
    stream.feed(b"progress 1\n")
    assert passed == [b"progress 1\n"]


def test_whatever_is_stored_goes_through_it() -> None:
    assert clean_text(f"a {SECRET}") == f"a {MASK}"
    assert clean_json({"a": [{SECRET: SECRET}]}) == {"a": [{MASK: MASK}]}
    text = "nothing to hide"
    assert clean_text(text) is text


def test_a_short_value_does_not_eat_ordinary_text() -> None:
    register_secrets(["guest", "a", ""])
    assert mask("a guest of the hotel") == "a guest of the hotel"


def test_of_two_secrets_the_longer_one_goes_first() -> None:
    register_secrets(["wombat-key", "wombat-key-too"])
    assert mask("wombat-key-too") == MASK


def test_logs_and_tracebacks_are_masked() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("tests.masking")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        mask_logs()
        mask_logs()  # a second time changes nothing
        try:
            raise ValueError(f"refused: {SECRET}")
        except ValueError:
            logger.exception("with %s", SECRET)
    finally:
        logger.removeHandler(handler)
    assert written.getvalue().startswith(f"ERROR: with {MASK}\nTraceback")
    assert "canary" not in written.getvalue()
