"""Telling text from binary by its first bytes."""

from __future__ import annotations

import codecs
from typing import Literal

HEAD_BYTES = 8192
_KNOWN = (
    (b"\x7fELF", "an ELF program or library"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a zip archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3\0", "an SQLite database"),
)
CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes that continue a UTF-8 character."""
_ODD = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\b\x1b")

Encoding = Literal["utf-8", "utf-8-sig", "utf-16"]


class BinaryFile(Exception):
    """The bytes are not text; the message says what they look like."""


def text_encoding(head: bytes) -> Encoding:
    """The encoding of a text that begins with `head` (its first HEAD_BYTES). Raises BinaryFile.

    What is not UTF-8 but has no NUL and few control characters (Latin-1, Shift JIS) counts as UTF-8 with errors.
    """
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for magic, what in _KNOWN:
        if head.startswith(magic):
            raise BinaryFile(what)
    if b"\0" in head or sum(byte in _ODD for byte in head) > len(head) // 10:
        raise BinaryFile("binary data")
    return "utf-8"


def whole_characters(data: bytes | bytearray) -> int:
    """The length of `data` without an unfinished UTF-8 character at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < needed else len(data)
        if byte < 0x80:
            break
    return len(data)
