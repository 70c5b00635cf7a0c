"""Fetching a file: in pieces, going on where a connection was cut, and in its place only when it is whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import httpx2

from sostenuto.errors import SostenutoError, TooLarge, Unavailable, UnexpectedAnswer, error_of
from sostenuto.flows import Do, Flow, Next, Open, Patience, Reply, Request, connection_failed


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, block: bytes, /) -> object: ...

    def restart(self) -> None:
        """Forget what was written: the file changed meanwhile, or cannot be fetched in part."""


class MemorySink:
    """Into memory, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.content = bytearray()

    def write(self, block: bytes) -> None:
        if len(self.content) + len(block) > self._limit:
            raise TooLarge(
                f"it has more than {self._limit:,} bytes", hint="use `download`, or a higher limit"
            )
        self.content += block

    def restart(self) -> None:
        self.content.clear()


class FileSink:
    """Beside the target under another name, until `finish` puts it in its place at once."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._partial = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.partial")
        self._file = self._partial.open("xb")

    def write(self, block: bytes) -> None:
        self._file.write(block)

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()

    def finish(self) -> None:
        """Everything is on the disk under its name, an older file of that name replaced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.target)

    def discard(self) -> None:
        """Nothing is left, unless it was finished."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def target_of(to: str | os.PathLike[str], name: str) -> Path:
    """The path to write: `to`, or the file's own name in it where it is a folder."""
    path = Path(to)
    if not path.is_dir():
        return path
    own = name.replace("\\", "/").rpartition("/")[2]
    if own in ("", ".", "..") or "\0" in own:
        raise ValueError(f"{name!r} is no name for a local file: say how it is to be called")
    return path / own


def downloaded(path: str, target: Path, retries: int) -> Flow[Path]:
    """The whole file at `target`, or nothing there. A cut fetch goes on; retries count from the last progress."""
    sink = FileSink(target)  # not as an effect: who cancels one does not learn what it made
    try:
        yield from fetched(path, sink, retries)
        yield Do(sink.finish)
    finally:
        sink.discard()
    return target


def fetched(path: str, sink: Sink, retries: int) -> Flow[None]:
    """Writes what is at this URL into the sink."""
    patience = Patience(retries)
    offset = furthest = 0
    tag: str | None = None
    while True:
        try:
            reply: Reply = yield Open(Request("GET", path, headers=_headers(offset, tag)))
            if reply.status not in (200, 206):
                raise error_of(reply.status, reply.headers, reply.content)
            if not _goes_on(reply, offset):
                offset = 0
                yield Do(sink.restart)
            tag = reply.headers.get("etag")
            whole = _whole_size(reply, offset)
            while (block := (yield Next())) is not None:
                yield Do(partial(sink.write, block))
                offset += len(block)
            if whole is not None and offset != whole:
                raise UnexpectedAnswer(f"{offset:,} bytes arrived of {whole:,}")
            return
        except httpx2.TransportError as error:
            failure: SostenutoError = connection_failed(error)
        except Unavailable as error:
            failure = error
        if offset > furthest:
            furthest = offset
            patience.renewed()
        yield from patience.after(failure)


def _headers(offset: int, tag: str | None) -> Mapping[str, str]:
    headers = {"Accept-Encoding": "identity"}
    if offset and tag is not None:
        headers |= {"Range": f"bytes={offset}-", "If-Range": tag}
    return headers


def _goes_on(reply: Reply, offset: int) -> bool:
    """Whether the answer begins at `offset` of the same file."""
    if reply.status == 206:
        if reply.headers.get("content-range", "").startswith(f"bytes {offset}-"):
            return True
        raise UnexpectedAnswer("another range was sent than the one asked for")
    return False


def _whole_size(reply: Reply, offset: int) -> int | None:
    length = reply.headers.get("content-length", "")
    encoded = "content-encoding" in reply.headers  # somebody between compressed it: the length is another
    return offset + int(length) if length.isdecimal() and not encoded else None
