"""Text of any origin made plain: without what steers a terminal, or with it made visible, and as one short line."""

from __future__ import annotations

import re

from storage.text import clean_text

_ESCAPES = re.compile(
    r"""
    \x1b\[ [0-?]{0,256} [ -/]{0,16} [@-~]?             # CSI: colours, cursor movement
  | \x1b[\]PX^_] [^\x07\x1b\x9c]{0,4096} (?:\x07|\x1b\\|\x9c)?  # OSC and other strings: titles, links, clipboard
  | \x1b [ -/]{0,16} [0-~]?                            # the short ones
  | \x9b [0-?]{0,256} [ -/]{0,16} [@-~]?               # CSI as one character
  | [\x80-\x9a\x9c-\x9f]                               # the other C1 controls
  | [\x01-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]          # C0 controls but tab and line ends
    """,
    re.VERBOSE,
)

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal or reorder what it shows; newline and tab are none."""


def visible(text: str) -> str:
    """`text` with every control character but newline and tab made visible; CR LF becomes a newline."""
    return UNSAFE.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def strip_terminal(text: str) -> str:
    """`text` without escape sequences and control characters, in linear time; tabs and line ends stay."""
    return _ESCAPES.sub("", text)


def one_line(text: str, most: int = 200) -> str:
    """`text` for a message: one clean line of at most `most` characters."""
    line = " ".join(strip_terminal(clean_text(text[: most * 4])).split())
    return line if len(line) <= most else line[: most - 1] + "…"
