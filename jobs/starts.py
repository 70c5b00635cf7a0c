"""What a job began with: for showing what its agent changed.

Beside the workspaces, `starts/JOB.zip` holds of each submitted file its size and hash and, of text that is not too long,
a copy. It is made with the workspace, before the job is committed; where the disk does not take it the job goes on without.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import NotFound
from jobs.resolver import shorten

MOST_COPY, MOST_COPIES = 256 << 10, 8 << 20  # bytes: of one file, and of all of a job
MOST_HASHED = 32 << 20  # a larger file counts as changed when its size or time does
MOST_LINES, MOST_LINE = 2_000, 2_000  # of a file that is compared; more takes too long
_MANIFEST = "manifest.json"  # all files are input/…


@dataclass(frozen=True, slots=True)
class Was:
    """A file as it was submitted."""

    size: int
    modified: float
    sha: str | None


@dataclass(frozen=True, slots=True)
class Start:
    """What is kept of a job's start, by the paths of the files; empty where nothing was submitted."""

    files: dict[str, Was] = field(default_factory=dict)
    known: bool = True  # False: nothing was kept, of a job from before this was done


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a comparison. `kind`: same, added, removed, or place (where the next ones are)."""

    kind: str
    text: str


def start_path(data_dir: Path, job_id: str) -> Path:
    """Where it is kept. The id has been checked."""
    return data_dir / "starts" / f"{job_id}.zip"


def keep_start(data_dir: Path, job_id: str, root: Path) -> None:
    """Keeps what stands in the `input/` of a workspace that nobody has worked in yet."""
    path = start_path(data_dir, job_id)
    partial = path.with_suffix(".part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            partial.chmod(0o600)
            _pack(archive, root)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def _pack(archive: zipfile.ZipFile, root: Path) -> None:
    manifest: dict[str, tuple[int, float, str | None]] = {}
    room = MOST_COPIES
    for folder, _, names in os.walk(root / "input"):
        for name in names:
            file = Path(folder) / name
            status = file.stat()
            path = file.relative_to(root).as_posix()
            sha = _hash(file) if status.st_size <= MOST_HASHED else None
            manifest[path] = (status.st_size, status.st_mtime, sha)
            if status.st_size <= min(MOST_COPY, room) and is_text(data := file.read_bytes()):
                archive.writestr(path, data)
                room -= status.st_size
    archive.writestr(_MANIFEST, json.dumps(manifest))


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def forget_start(data_dir: Path, job_id: str) -> None:
    """Deletes it with its job."""
    with contextlib.suppress(OSError):
        start_path(data_dir, job_id).unlink()


def read_start(data_dir: Path, job_id: str) -> Start:
    """What the job began with."""
    with contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        with zipfile.ZipFile(start_path(data_dir, job_id)) as archive:
            manifest = json.loads(archive.read(_MANIFEST))
        return Start({path: Was(*values) for path, values in manifest.items()})
    return Start(known=False)


def original(data_dir: Path, job_id: str, path: str) -> bytes:
    """A submitted file's bytes as they were. Raises NotFound where no copy is kept."""
    try:
        with zipfile.ZipFile(start_path(data_dir, job_id)) as archive:
            return archive.read(path)
    except (OSError, KeyError, zipfile.BadZipFile):
        raise NotFound(f"of {shorten(path)} no copy from the job's start is kept") from None


def is_text(data: bytes) -> bool:
    """Whether this can be shown, and compared, line by line."""
    return b"\0" not in data and _decoded(data) is not None


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def compare(before: bytes, after: bytes) -> list[Line] | None:
    """What changed, with three lines around each place. None: a file is binary, or too long."""
    old, new = _lines(before), _lines(after)
    return None if old is None or new is None else list(_compared(old, new))


def _lines(data: bytes) -> list[str] | None:
    text = _decoded(data) if len(data) <= MOST_COPY and b"\0" not in data else None
    lines = None if text is None else text.splitlines()
    if lines is None or len(lines) > MOST_LINES or max(map(len, lines), default=0) > MOST_LINE:
        return None
    return lines


_KINDS = {"+": "added", "-": "removed", " ": "same", "@": "place"}


def _compared(before: list[str], after: list[str]) -> Iterator[Line]:
    for number, line in enumerate(difflib.unified_diff(before, after, lineterm="")):
        if number >= 2:  # after the names of the two files
            kind = _KINDS[line[0]]
            yield Line(kind, line if kind == "place" else line[1:])
