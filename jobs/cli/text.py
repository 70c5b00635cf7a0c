"""Text for a terminal. What models, files and people wrote is hostile until its control characters are shown, not sent.

An escape sequence could retitle the window, fill the clipboard (OSC 52) or hide what was printed; bidirectional
overrides could reorder it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from jobs.plain_text import UNSAFE
from jobs.plain_text import visible as clean

__all__ = ["clean", "one_line", "to_json"]

_BLANKS = re.compile(r"\s+")


def one_line(text: str, width: int) -> str:
    """Clean text on one line of at most `width` characters, cut with an ellipsis."""
    line = _BLANKS.sub(" ", clean(text[: width * 4])).strip()
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def to_json(data: Any, *, indent: int | None = 2) -> str:
    """JSON that is safe to print: what `clean` would show is escaped, everything else readable."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, allow_nan=False)
    # Newlines here are the document's own: inside strings json.dumps has escaped them.
    return UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
