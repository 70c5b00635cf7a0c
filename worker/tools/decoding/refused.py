"""What every reader refuses with, and how it writes units of text."""

from __future__ import annotations

import json
from typing import Any, BinaryIO


class Refused(Exception):
    """The file will not be read; the message completes "FILE cannot be read: "."""


class Full(Exception):
    """Enough was written."""


class Writer:
    """Writes a document's head and its units (pages, slides, rows, paragraphs) until there is enough for one answer.

    Units are numbered from 1. Of the first one wanted, `char_offset` characters are passed over.
    """

    def __init__(self, request: dict[str, Any], out: BinaryIO) -> None:
        self._first: int = request["first"]
        self._last: int | None = request["last"]
        self._skip: int = request["char_offset"]
        self._room: int = request["most_chars"]
        self._out = out

    def head(self, what: str, unit: str, total: int | None, **more: Any) -> None:
        """Before all units: what the document is, and how many units it has, if that is known."""
        self._line({"what": what, "unit": unit, "total": total, **more})

    @property
    def first(self) -> int:
        return self._first

    @property
    def last(self) -> int | None:
        return self._last

    def wants(self, number: int) -> bool:
        """Whether this unit is to be written. Raises Full after the last one."""
        if self._last is not None and number > self._last:
            raise Full
        return number >= self._first

    def unit(self, number: int, text: str) -> None:
        """Raises Full when there is enough."""
        # Halves of a pair would be joined on the way, and offsets counted here would be others there.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if number == self._first:
            text = text[self._skip :]
        cut = len(text) > self._room
        self._line({"n": number, "text": text[: self._room], "cut": cut})
        self._room -= len(text) + 20  # a unit without text costs something, too
        if self._room <= 0:
            raise Full

    def end(self) -> None:
        """All units were written: nothing follows the last one."""
        self._line({"end": True})

    def _line(self, document: dict[str, Any]) -> None:
        self._out.write(json.dumps(document).encode() + b"\n")
