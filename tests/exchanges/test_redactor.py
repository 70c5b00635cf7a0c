"""Secrets are masked in every form in which text carries them on."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.secrets import MASK, Redactor

SECRET = 'sk-"Geheim/ü+0123456789'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(b"user:" + SECRET.encode() + b" and more").decode(),
    ],
)
def test_every_form(form: str) -> None:
    masked = Redactor([SECRET]).text(f"before {form} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for piece in ("Geheim", "0123456", form[4:-4]):
        assert piece not in masked


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_base64_wherever_it_begins(before: bytes, after: bytes) -> None:
    text = base64.b64encode(before + b"a-long-secret-value" + after).decode()
    assert Redactor(["a-long-secret-value"]).holds_secret(text)


def test_nothing_to_mask() -> None:
    redactor = Redactor(["", "abc"])
    assert redactor.text("abc") == "abc"
    assert not redactor.holds_secret("abc")


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redactor(["secret", "secret-too"]).text("secret-too") == MASK
