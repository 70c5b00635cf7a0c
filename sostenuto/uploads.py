"""Request bodies: JSON, one file, a form with files. Files are streamed, never held in memory."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sostenuto.flows import Body

Source = str | Path | bytes | BinaryIO  # a path; the content itself; a binary file, read from where it stands
Files = Mapping[str, Source] | Iterable[str | Path | tuple[str, Source]]
_BLOCK = 256 << 10
_JSON = {"Content-Type": "application/json"}


def json_body(document: Any) -> Body:
    """A JSON document as a body."""
    return _whole(json.dumps(document).encode(), _JSON)


def file_body(source: Source) -> Body:
    """One file as a body. Raises OSError where a path cannot be read."""
    content = _Content(source)
    return Body(_sized("application/octet-stream", content.size), content.blocks, content.repeatable)


def form_body(document: Any, files: Mapping[str, Source]) -> Body:
    """A form: the part `job` is the document, every other part a file under its name in `input/`."""
    boundary = secrets.token_hex(16)
    job = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="job"\r\n\r\n'.encode(),
        json.dumps(document).encode(),
    ]
    contents = [(_part_head(boundary, name), _Content(source)) for name, source in files.items()]
    tail = f"\r\n--{boundary}--\r\n".encode()

    def blocks() -> Iterator[bytes]:
        yield from job
        for head, content in contents:
            yield head
            yield from content.blocks()
        yield tail

    sizes = [content.size for _, content in contents]
    known = [size for size in sizes if size is not None]
    around = sum(map(len, job)) + sum(len(head) for head, _ in contents) + len(tail)
    total = around + sum(known) if len(known) == len(sizes) else None
    repeatable = all(content.repeatable for _, content in contents)
    return Body(_sized(f"multipart/form-data; boundary={boundary}", total), blocks, repeatable)


def named_files(files: Files) -> dict[str, Source]:
    """Each file under the name that it will have in `input/`: a path's own name where none is given.

    Raises ValueError for a name twice, one that cannot be sent, or content without a name.
    """
    given = files.items() if isinstance(files, Mapping) else [_named(file) for file in files]
    named: dict[str, Source] = {}
    for name, source in given:
        if name in named:
            raise ValueError(f"two files are named {name!r}: give names as a mapping or as (name, file)")
        if not name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
            raise ValueError(f"{name!r} cannot be a file's name")
        named[name] = source
    return named


def _named(file: str | Path | tuple[str, Source]) -> tuple[str, Source]:
    if isinstance(file, tuple):
        return file
    if isinstance(file, (str, Path)):
        return Path(file).name, file
    raise ValueError("a file's content needs a name: give (name, content)")


class _Content:
    """One file's bytes, as often as its source can give them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.repeatable = True
        if isinstance(source, bytes):
            self.size: int | None = len(source)
        elif isinstance(source, (str, Path)):
            with Path(source).open(
                "rb"
            ) as file:  # here, so that a wrong path is an error before anything is sent
                self.size = os.fstat(file.fileno()).st_size
        else:
            self._begin_with(source)

    def _begin_with(self, file: BinaryIO) -> None:
        if not isinstance(file.read(0), bytes):
            raise TypeError("a file must be opened in binary mode")
        self.repeatable = file.seekable()
        self._start = file.tell() if self.repeatable else 0
        self.size = file.seek(0, os.SEEK_END) - self._start if self.repeatable else None

    def blocks(self) -> Iterator[bytes]:
        if isinstance(self._source, bytes):
            yield self._source
        elif isinstance(self._source, (str, Path)):
            with Path(self._source).open("rb") as file:
                yield from _read(file)
        else:
            if self.repeatable:
                self._source.seek(self._start)
            yield from _read(self._source)


def _read(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _whole(content: bytes, headers: Mapping[str, str]) -> Body:
    return Body({**headers, "Content-Length": str(len(content))}, lambda: iter([content]))


def _sized(kind: str, size: int | None) -> dict[str, str]:
    """Without a length the transport sends chunks."""
    return {"Content-Type": kind} | ({} if size is None else {"Content-Length": str(size)})


def _part_head(boundary: str, name: str) -> bytes:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{quoted}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
