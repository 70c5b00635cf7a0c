"""Telling text from binary by its first bytes."""

from __future__ import annotations

HEAD_BYTES = 8192
_STRINGS = "With Bash, `file`, `strings | head` or `xxd | head` show what is in it."
_KNOWN = (
    (b"\x7fELF", "an ELF program or library", _STRINGS),
    (b"%PDF-", "a PDF document", "ReadPdf reads its text."),
    (b"\x89PNG", "a PNG image", "ReadImage shows it."),
    (b"\xff\xd8\xff", "a JPEG image", "ReadImage shows it."),
    (b"GIF8", "a GIF image", "ReadImage shows it."),
    (
        b"PK\x03\x04",
        "a zip archive or office document",
        "ReadOffice reads DOCX, XLSX and PPTX; `unzip -l` in Bash lists an archive.",
    ),
    (b"\xd0\xcf\x11\xe0", "an old office document, or an encrypted one", _STRINGS),
    (b"\x1f\x8b", "gzip data", "`zcat | head` in Bash unpacks it."),
    (b"SQLite format 3\0", "an SQLite database", "Python's sqlite3 module in Bash reads it."),
)
CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes that continue a UTF-8 character."""
_ODD = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\b\x1b")


class BinaryFile(Exception):
    """The bytes are not text; the message says what they look like, `hint` what helps."""

    def __init__(self, what: str, hint: str = _STRINGS) -> None:
        super().__init__(what)
        self.hint = hint


def refuse_binary(head: bytes) -> None:
    """Raise BinaryFile if a file that begins with `head`, without a byte order mark, is no text.

    What has no NUL and few control characters counts as text, whatever its encoding.
    """
    for magic, what, hint in _KNOWN:
        if head.startswith(magic):
            raise BinaryFile(what, hint)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        raise BinaryFile("a WebP image", "ReadImage shows it.")
    if b"\0" in head or sum(byte in _ODD for byte in head) > max(len(head) // 10, 3):
        raise BinaryFile("binary data")


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
