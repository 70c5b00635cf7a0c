"""A job's files as a tree, each with what became of it since the job's start."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from jobs.errors import SostenutoError
from jobs.installation import Installation
from jobs.starts import MOST_COPY, MOST_HASHED, Line, Start, Was, compare, original, read_start
from jobs.web.panels import can_be_previewed
from jobs.workspace import Entry, list_workspace, open_file, workspace_path

FILES_SHOWN = 1000
MOST_HASHED_IN_ALL = 64 << 20  # bytes read for one page; files beyond count as changed when their times do


@dataclass(frozen=True, slots=True)
class File:
    """A file of the tree. `state`: new, changed, same or gone; `url` and so on: None for what cannot be had."""

    name: str
    path: str
    size: int
    modified: float | None
    state: str
    kind: str = "file"
    url: str | None = None
    preview: str | None = None
    diff: str | None = None


@dataclass(slots=True)
class Folder:
    """A folder of the tree, with what is in it."""

    name: str
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[File] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.files) + sum(folder.count for folder in self.folders.values())

    @property
    def changes(self) -> int:
        """How many of its files are not as they were."""
        own = sum(file.state != "same" for file in self.files)
        return own + sum(folder.changes for folder in self.folders.values())


@dataclass(frozen=True, slots=True)
class Tree:
    """`input/` and `output/`. `known` False: nothing is kept of the start, so nothing is called changed."""

    folders: list[Folder]
    shown: int
    total: int
    known: bool


def tree_of(installation: Installation, job_id: str) -> Tree:
    """The files now, against the job's start. An empty tree where the workspace is gone."""
    data_dir = installation.settings.data_dir
    root = workspace_path(data_dir, job_id)
    try:
        listing = list_workspace(root, most=FILES_SHOWN)
    except SostenutoError:
        return Tree([], 0, 0, known=True)
    start = read_start(data_dir, job_id)
    top = Folder("")
    for file in _files(root, job_id, listing.entries, start):
        _place(top, file)
    order = ["output", "input"]
    folders = [top.folders[name] for name in order if name in top.folders]
    return Tree(folders, len(listing.entries), listing.total, start.known)


def _place(top: Folder, file: File) -> None:
    folder = top
    for part in file.path.split("/")[:-1]:
        folder = folder.folders.setdefault(part, Folder(part))
    folder.files.append(file)


def _files(root: Path, job_id: str, entries: tuple[Entry, ...], start: Start) -> Iterator[File]:
    seen = set()
    room = MOST_HASHED_IN_ALL
    for entry in entries:
        path = _shown(entry.path)
        seen.add(entry.path)
        was = start.files.get(entry.path)
        state = "new" if start.known else "same"
        if was is not None:
            compared = entry.size == was.size and entry.modified != was.modified and was.sha is not None
            room -= entry.size if compared else 0
            state = _state(root, entry, was, reads=compared and room >= 0)
        yield _file(job_id, entry, path, state)
    for path in start.files.keys() - seen if len(entries) < FILES_SHOWN else ():
        diff = f"/jobs/{job_id}/diff/{quote(path)}"
        name = path.rpartition("/")[2]
        yield File(name, path, start.files[path].size, None, "gone", diff=diff)


def _state(root: Path, entry: Entry, was: Was, *, reads: bool) -> str:
    if entry.kind != "file" or entry.size != was.size:
        return "changed"
    if entry.modified == was.modified:
        return "same"
    return "same" if reads and _hash(root, entry.path) == was.sha else "changed"


def _hash(root: Path, path: str) -> str | None:
    try:
        with closing(open_file(root, path)) as file:
            data = file.read(MOST_HASHED)
    except SostenutoError:
        return None
    return hashlib.sha256(data).hexdigest()


def _file(job_id: str, entry: Entry, path: str, state: str) -> File:
    name = path.rpartition("/")[2]
    if entry.kind != "file":
        return File(name, path, 0, entry.modified, state, entry.kind)
    quoted = quote(entry.path, errors="surrogateescape")
    return File(
        name, path, entry.size, entry.modified, state,
        url=f"/api/jobs/{job_id}/files/{quoted}",
        preview=f"/jobs/{job_id}/preview/{quoted}" if can_be_previewed(entry.path) else None,
        diff=f"/jobs/{job_id}/diff/{quoted}" if state == "changed" else None,
    )  # fmt: skip


def _shown(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="replace")


def diff_of(installation: Installation, job_id: str, path: str) -> tuple[list[Line] | None, int]:
    """A submitted file against what it is now, and the size of what was read. None: it cannot be compared.

    Raises NotFound where no copy from the start is kept, and what opening a file raises.
    """
    data_dir = installation.settings.data_dir
    before = original(data_dir, job_id, path)
    after = b""
    entry_root = workspace_path(data_dir, job_id)
    if any(entry.path == path for entry in list_workspace(entry_root, most=FILES_SHOWN).entries):
        with closing(open_file(entry_root, path)) as file:
            after = file.read(MOST_COPY + 1)
    return compare(before, after), len(before) + len(after)
