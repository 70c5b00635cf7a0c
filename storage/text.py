"""Cleaning text on its way into the database, so that both databases and every client can take it back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from storage.masking import mask

NUL_SYMBOL = "\u2400"  # ␀: Postgres refuses NUL in text, and a reader should still see that it was there
# One encoder for all: `json.dumps` makes a new one for each value that is not written its default way.
compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """`text` made valid, with registered secrets masked. Clean text is returned as it is."""
    return valid_text(mask(text))


def valid_text(text: str) -> str:
    """`text` with NUL made visible, surrogate pairs joined, and lone surrogates replaced by U+FFFD.

    Valid text is returned as it is.
    """
    if "\0" in text:
        text = text.replace("\0", NUL_SYMBOL)
    if text.isascii() or not _LONE_SURROGATE.search(text):
        return text
    # A pair that arrived as two halves becomes its character again; a half alone becomes U+FFFD.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """`value` (what json.loads gives) with every string in it cleaned, keys included. Other values pass.

    NaN and infinities, which Python reads and JSON has not, become null, as in JavaScript. A clean value is returned as
    it is.
    """
    return value if _is_clean(value) else _with_texts(value, clean_text)


def valid_json(value: Any) -> Any:
    """`value` as `clean_json` has it, its strings made valid and nothing masked."""
    return _with_texts(value, valid_text)


def _is_clean(value: Any) -> bool:
    """False where it cannot be told at a glance. Written as JSON a value is looked through at once, not text by text."""
    if not isinstance(value, dict | list):
        return value is None
    try:
        text = _strict_json(value)
    except (TypeError, ValueError, RecursionError):  # no JSON, or not a finite number
        return False
    return "\\u0000" not in text and clean_text(text) is text


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_with_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(str(key)): _with_texts(item, change) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
