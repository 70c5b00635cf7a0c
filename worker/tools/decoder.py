"""Runs the child that decodes images and documents (worker/tools/decoding) in the sandbox, and checks its answer.

A decoder is given an opened file, never a path, and sees no workspace: were a file to take it over, it could only give a
wrong answer. So nothing in the answer is taken on trust, its size least of all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from jobs.errors import FileRejected
from jobs.plain_text import one_line
from jobs.resolver import shorten
from jobs.workspace import human
from storage.errors import SostenutoError
from worker.cancel import Cancelled
from worker.sandbox.base import Ending, SandboxUnavailable, Service
from worker.sandbox.toolchain import python_prefix, python_program
from worker.tools.base import ToolContext

_CHILD = Path(__file__).with_name("decoding") / "child.py"
_SECONDS = 60.0
_CPU_SECONDS = 40
_MEMORY = 1 << 30
_MOST_AT_ONCE = 2
_LOOK = 0.2
_turns = threading.BoundedSemaphore(_MOST_AT_ONCE)
"""So many children at once in this process: each may use a gigabyte."""


class CannotDecode(SostenutoError):
    """The file cannot be read as what it was asked for as: damaged, encrypted, too large, or something else."""


def decode(
    context: ToolContext, path: str, file: BinaryIO, *, reader: str, options: dict[str, Any], most: int
) -> bytes:
    """The child's answer to a request, at most `most` bytes of it.

    Raises CannotDecode, with what the child said of the file; SandboxUnavailable; Cancelled.
    """
    if context.sandbox is None:
        raise SandboxUnavailable("this worker has no sandbox, so it opens no images and documents")
    file.seek(0)
    answer = bytearray()
    too_much = CannotDecode(f"{shorten(path)} cannot be read: its reader answered too much")

    def take(data: bytes) -> None:
        answer.extend(data)
        if len(answer) > most:
            raise too_much

    packages = _packages()
    request = {
        "reader": reader,
        "packages": str(packages),
        "memory_bytes": _MEMORY,
        "cpu_seconds": _CPU_SECONDS,
    }
    with _turn(context), tempfile.TemporaryDirectory(prefix="sostenuto-decode-") as folder:
        outcome = context.sandbox.run(
            [python_program(), "-I", "-S", str(_CHILD), json.dumps(request | options)],
            workspace=Path(folder),
            timeout=_SECONDS,
            cancel=context.cancel,
            on_output=take,
            service=Service(file.fileno(), _ignore, folders=_folders(packages, Path(folder))),
        )
    if outcome.ending is Ending.CANCELLED:
        raise Cancelled(context.cancel.reason or "cancel")
    if (error := _error_in(bytes(answer))) is not None:
        raise CannotDecode(f"{shorten(path)} cannot be read: {one_line(error, 400)}")
    if outcome.ending is not Ending.EXITED or outcome.exit_code != 0:
        told = "it took too long" if outcome.ending is Ending.TIMEOUT else _died(outcome.exit_code)
        raise CannotDecode(f"{shorten(path)} cannot be read: {told}")
    return bytes(answer)


def require_size(path: str, file: BinaryIO, most: int) -> None:
    """Raise FileRejected if the open file has more than `most` bytes, or none."""
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise FileRejected(f"{shorten(path)} has {human(size)}; at most {human(most)} can be read")
    if not size:
        raise FileRejected(f"{shorten(path)} is empty")


def json_lines(answer: bytes) -> Iterator[dict[str, Any]]:
    """The objects in an answer. Raises CannotDecode for what is none."""
    for line in answer.splitlines():
        if line:
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                document = None
            if not isinstance(document, dict):
                raise CannotDecode("the file's reader gave no answer that can be understood")
            yield document


@contextmanager
def _turn(context: ToolContext) -> Iterator[None]:
    while not _turns.acquire(timeout=_LOOK):
        context.cancel.raise_if_cancelled()
    try:
        yield
    finally:
        _turns.release()


def _packages() -> Path:
    """The folder that Pillow and the other readers are installed in."""
    spec = importlib.util.find_spec("PIL")
    if spec is None or spec.origin is None:
        raise SandboxUnavailable("the readers of images and documents are not installed")
    return Path(spec.origin).parent.parent


def _folders(packages: Path, workspace: Path) -> tuple[Path, ...]:
    """What a child may read beside the toolchain."""
    prefix = Path(sys.base_prefix).resolve()
    own = () if python_prefix(workspace) or prefix == Path("/usr") else (prefix / "bin", prefix / "lib")
    return (packages, _CHILD.parent, *own)


def _error_in(answer: bytes) -> str | None:
    """What the child says of a file that it cannot read: its last line."""
    last = answer.rstrip(b"\n").rpartition(b"\n")[2]
    if not last.startswith(b'{"error": '):
        return None
    try:
        return str(json.loads(last)["error"])
    except (ValueError, RecursionError):
        return None


def _died(code: int | None) -> str:
    if code is not None and code in (128 + 9, 128 + 24):
        return "it took too much time or memory"
    return f"its reader died (exit code {code})"


_ignore: Callable[[bytes], None] = lambda _: None  # noqa: E731  what libraries print is of no use to a model
