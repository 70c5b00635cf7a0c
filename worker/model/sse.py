"""Server-sent events, as far as chat completions use them: from bytes to the payload of each event.

Own parsing, because with 200 streams on one thread a general client spends more time on lines than the models take.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_LINE = 16 * 1024 * 1024


class LineTooLong(ValueError):
    """A line longer than MAX_LINE: no chat completion, and no reason to fill the memory."""


class EventParser:
    """Feed bytes as they come, in any cut; take whole payloads. An event the stream ends in is given by `flush`.

    A payload is the joined `data` of one event. Comments and other fields are skipped; a line `error: …` (llama.cpp)
    counts as data. Payloads are bytes: decoding them is the caller's, who knows what a bad one means.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of a line whose end has not come
        self._size = 0
        self._data: list[bytes] = []  # data lines of the event being read

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Payloads completed by this chunk. Raises LineTooLong."""
        if b"\n" not in chunk and b"\r" not in chunk:
            self._keep(chunk)
            return
        self._partial.append(chunk)
        lines = b"".join(self._partial).splitlines(keepends=True)
        self._partial, self._size = [], 0
        # A line feed may still follow a final carriage return, so that one waits as well.
        if not lines[-1].endswith(b"\n"):
            self._keep(lines.pop())
        for line in lines:
            yield from self._line(line.rstrip(b"\r\n"))

    def flush(self) -> Iterator[bytes]:
        """What the stream's end leaves over: some servers send no blank line after the last event."""
        yield from self._line(b"".join(self._partial).rstrip(b"\r\n"))
        yield from self._line(b"")

    def _keep(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._size += len(piece)
        if self._size > MAX_LINE:
            raise LineTooLong(f"a line of more than {MAX_LINE} bytes")

    def _line(self, line: bytes) -> Iterator[bytes]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip(b" "))
        elif line.startswith(b"error:"):
            self._data.append(line[6:].strip(b" "))
        elif not line and self._data:
            data, self._data = self._data, []
            # Events not divided by blank lines arrive as one: JSON objects in a row are events of their own.
            if len(data) > 1 and all(part[:1] in (b"{", b"[") and part[-1:] in (b"}", b"]") for part in data):
                yield from data
            else:
                yield b"\n".join(data)
