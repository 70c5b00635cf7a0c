"""The encodings of text files: told from a bounded sample, decoded so that each character can be counted back to bytes.

Offsets are always those of the file as it is, whatever its encoding, and a long file is never decoded as a whole.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from dataclasses import dataclass
from typing import BinaryIO

from charset_normalizer import from_bytes

from worker.tools.sniff import HEAD_BYTES, refuse_binary, whole_characters

_SAMPLE = 1 << 16
_BLOCK = 1 << 20
_LONGEST_ASCII = 64 << 20  # so far a file is searched for its first character beyond ASCII
_BACK = 1 << 16
_ASCII = re.compile(rb"([\x00-\x7f]{8})[\x00-\x7f]+([\x00-\x7f]{8})")
_GUESSED = {"cp932": "Shift_JIS", "euc_jp": "EUC-JP", "cp1252": "Windows-1252"}


def _keep_byte(error: UnicodeError) -> tuple[str, int]:
    """A byte that is no character becomes one lone surrogate, as with `surrogateescape`, and never takes its
    neighbour along."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(0xDC00 + error.object[error.start]), error.start + 1


def _replace_unit(size: int, error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", min(error.start + size, len(error.object))


codecs.register_error("sostenuto.byte", _keep_byte)
codecs.register_error("sostenuto.unit2", lambda error: _replace_unit(2, error))
codecs.register_error("sostenuto.unit4", lambda error: _replace_unit(4, error))


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's bytes become text, and back."""

    label: str
    """its name for people"""
    codec: str
    bom: bytes = b""
    unit: int = 1
    """bytes of the smallest character"""

    @property
    def is_utf8(self) -> bool:
        return self.codec == "utf-8"

    def decode(self, data: bytes, *, final: bool = True) -> str:
        """The text of `data`, which begins at a character, without an unfinished one at its end unless `final`.

        Bytes that are none of this encoding become U+FFFD, or lone surrogates where a unit is one byte.
        """
        if not final:
            data = data[: self.whole(data)]
        if self.unit == 1:
            return data.decode(self.codec, "surrogateescape" if self.is_utf8 else "sostenuto.byte")
        return data.decode(self.codec, f"sostenuto.unit{self.unit}")

    def whole(self, data: bytes) -> int:
        """The length of `data` without an unfinished character at its end; all of it if there is no whole one."""
        if self.is_utf8:
            return whole_characters(data) or len(data)
        if self.unit == 1:
            decoder = codecs.getincrementaldecoder(self.codec)("sostenuto.byte")
            decoder.decode(data)
            return len(data) - len(decoder.getstate()[0]) or len(data)
        length = len(data) // self.unit * self.unit
        if self.codec.startswith("utf-16") and length and _is_high(self._unit_at(data, length - 2)):
            length -= 2
        return length or len(data)

    def size(self, data: bytes, text: str, start: int = 0) -> int:
        """How many bytes of `data`, from `start` on, gave `text`."""
        if self.unit == 4:
            return min(4 * len(text), len(data) - start)
        if self.unit == 2:
            return min(len(text.encode("utf-16-le", "surrogatepass")), len(data) - start)
        size = len(text.encode(self.codec, "surrogateescape"))
        if self.is_utf8 or self.decode(data[start : start + size]) == text:
            return size
        # A character with two forms of different length: EUC-JP has one.
        decoder = codecs.getincrementaldecoder(self.codec)("sostenuto.byte")
        left = len(text)
        for at in range(start, len(data)):
            if left <= 0:
                return at - start
            left -= len(decoder.decode(data[at : at + 1]))
        return len(data) - start

    def start_of_character(self, file: BinaryIO, position: int) -> int:
        """`position`, or a few bytes before it if it lies inside a character."""
        first = len(self.bom)
        if position <= first:
            return first
        if self.unit > 1:
            position -= (position - first) % self.unit
            file.seek(max(position - 2, first))
            pair = file.read(4)
            inside = self.unit == 2 and position - 2 >= first and _is_high(self._unit_at(pair, 0))
            return position - 2 if inside and _is_low(self._unit_at(pair, 2)) else position
        if self.is_utf8:
            return _start_in_utf8(file, position, first)
        start = max(position - _BACK, first)
        file.seek(start)
        before = file.read(position - start)
        # A line end is never a part of a longer character: from there on it is clear where each begins.
        before = before[before.rfind(b"\n") + 1 :]
        return position - (len(before) - self.whole(before))

    def _unit_at(self, data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + 2], "big" if self.codec.endswith("be") else "little")


def _start_in_utf8(file: BinaryIO, position: int, first: int) -> int:
    """Only a whole character counts: among bytes that are none, each stands for itself."""
    start = max(position - 3, first)
    file.seek(start)
    around = file.read(position - start + 3)
    for at in range(min(position - start, len(around))):
        byte = around[at]
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        if start + at + length > position:
            with contextlib.suppress(UnicodeDecodeError):
                around[at : at + length].decode()
                return start + at
    return position


def _is_high(unit: int) -> bool:
    return 0xD800 <= unit < 0xDC00


def _is_low(unit: int) -> bool:
    return 0xDC00 <= unit < 0xE000


UTF8 = Encoding("UTF-8", "utf-8")
_MARKED = (
    Encoding("UTF-8 with a byte order mark", "utf-8", codecs.BOM_UTF8),
    Encoding("UTF-32", "utf-32-le", codecs.BOM_UTF32_LE, 4),
    Encoding("UTF-32", "utf-32-be", codecs.BOM_UTF32_BE, 4),
    Encoding("UTF-16", "utf-16-le", codecs.BOM_UTF16_LE, 2),
    Encoding("UTF-16", "utf-16-be", codecs.BOM_UTF16_BE, 2),
)


def encoding_of(file: BinaryIO) -> Encoding:
    """The encoding of a text file, told from a sample of bounded size; the position is moved. Raises BinaryFile.

    A byte order mark decides. Else what looks like UTF-8 is taken for it; Shift_JIS, EUC-JP and Windows-1252 are
    guessed, and a guess may be wrong. What is none of these counts as UTF-8 with errors.
    """
    file.seek(0)
    head = file.read(HEAD_BYTES)
    for marked in _MARKED:
        if head.startswith(marked.bom):
            return marked
    refuse_binary(head)
    sample, ends_file = _sample(file, head)
    return UTF8 if _looks_like_utf8(sample) else _guess(sample, ends_file=ends_file)


def shown_undecoded(text: str) -> str:
    """Decoded text as it is shown: bytes that were no characters are U+FFFD."""
    return text if text.isascii() else text.translate(_UNDECODED)


_UNDECODED = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")


def _sample(file: BinaryIO, head: bytes) -> tuple[bytes, bool]:
    """A part of the file that begins with a line and holds its first character beyond ASCII, if it has one early."""
    size = os.fstat(file.fileno()).st_size
    block, position = head, 0
    while block.isascii():
        position += len(block)
        if position >= _LONGEST_ASCII or not (block := file.read(_BLOCK)):
            return b"", True
    first = next(at for at, byte in enumerate(block) if byte > 127)
    start = position + block.rfind(b"\n", 0, first) + 1
    start = max(start, position + first - _SAMPLE // 2)  # the line before it may be very long
    file.seek(start)
    sample = file.read(_SAMPLE)
    return sample, start + len(sample) >= size


def _looks_like_utf8(sample: bytes) -> bool:
    """True also for a text with a few bytes that are no UTF-8."""
    text = sample[: whole_characters(sample)].decode("utf-8", "surrogateescape")
    bad = sum("\udc80" <= character <= "\udcff" for character in text)
    return not bad or sum(character > "\x7f" for character in text) - bad > 4 * bad


def _guess(sample: bytes, *, ends_file: bool) -> Encoding:
    for cut in range(1 if ends_file else 4):  # the sample may end inside a character
        # Long stretches of ASCII say nothing, and drown what little else there is.
        telling = _ASCII.sub(rb"\1\2", sample[: len(sample) - cut])
        found = from_bytes(telling, cp_isolation=list(_GUESSED), preemptive_behaviour=False).best()
        if found is not None and found.encoding in _GUESSED:
            return Encoding(_GUESSED[found.encoding], found.encoding)
    return UTF8
