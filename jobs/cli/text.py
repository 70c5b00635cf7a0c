"""Text for a terminal. What models, files and people wrote is hostile until its control characters are shown, not sent.

An escape sequence could retitle the window, fill the clipboard (OSC 52) or hide what was printed; bidirectional
overrides could reorder it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BLANKS = re.compile(r"\s+")


def clean(text: str) -> str:
    """`text` with every control character but newline and tab made visible; CR LF becomes a newline."""
    return _UNSAFE.sub(_picture, text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """Clean text on one line of at most `width` characters, cut with an ellipsis."""
    line = _BLANKS.sub(" ", clean(text[: width * 4])).strip()
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def to_json(data: Any, *, indent: int | None = 2) -> str:
    """JSON that is safe to print: what `clean` would show is escaped, everything else readable."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, allow_nan=False)
    # Newlines here are the document's own: inside strings json.dumps has escaped them.
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
