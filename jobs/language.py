"""The language that a job is written in, as far as texts of ours are to follow it."""

from __future__ import annotations

import re

_KANA = re.compile("[\u3040-\u30ff]")
_LOOKED_AT = 20_000  # characters


def is_japanese(text: str) -> bool:
    """Whether `text` holds kana near its beginning, which no other language writes."""
    return _KANA.search(text, 0, _LOOKED_AT) is not None
