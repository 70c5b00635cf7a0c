"""A job's workspace: the folder `workspaces/{job_id}/` of the data folder, with `input/`, `output/` and `logs/`.

Nothing here follows a symbolic link or blocks on a FIFO: the agent may have put either anywhere (see jobs.resolver).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from jobs.errors import FileInTheWay, FileRejected, NotFound
from jobs.resolver import (
    TEMPORARY_PREFIX,
    open_folder,
    open_regular,
    open_workspace,
    replacing,
    shorten,
    split_path,
)
from jobs.starts import forget_start, keep_start

FOLDERS = ("input", "output", "logs")
MOST_LISTED = 200
_MOST_WALKED = 200_000
_BLOCK = 1 << 20
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on the files put into one workspace from outside."""

    file_bytes: int = 100 << 20
    total_bytes: int = 1 << 30
    files: int = 1000


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to put into `input/`: its name there (may have folders) and where its bytes come from.

    A path is opened only when it is copied; a stream is read to its end and left open.
    """

    name: str
    source: Path | bytes | BinaryIO


Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a workspace. `size` is 0 for all but files; `links` is the number of names a file has."""

    path: str
    kind: Kind
    size: int
    modified: float
    links: int = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """The first entries in the order of their paths, and how many there are in all (`complete` is False when
    the walk was given up: there are at least `total`)."""

    entries: tuple[Entry, ...]
    total: int
    complete: bool = True


def workspace_path(data_dir: Path, job_id: str) -> Path:
    """Where the job's workspace is, or will be. Raises FileRejected when the id cannot be one."""
    if not _JOB_ID.fullmatch(job_id):
        raise FileRejected(f"{shorten(job_id)} is not a job id")
    return data_dir / "workspaces" / job_id


def create_workspace(
    data_dir: Path, job_id: str, inputs: Iterable[InputFile] = (), limits: Limits | None = None
) -> Path:
    """Make the workspace with its input files, all or nothing, and return its path.

    When it returns, everything is fsynced: call it before the job is committed, and `remove_workspace` if that fails.
    Raises FileRejected (a bad or doubled name, a limit, an existing workspace); then nothing is left. A process killed
    in between leaves a folder named `.{job_id}.partial`, which the next call with this id removes.
    """
    final = workspace_path(data_dir, job_id)
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f".{job_id}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for folder in FOLDERS:
            (partial / folder).mkdir(parents=True)
        _copy_inputs(partial, inputs, limits or Limits())
        for folder, folders, files in os.walk(partial):
            if folders or files:  # an empty one is all in its parent
                _fsync_folder(Path(folder))
        if final.exists():
            raise FileRejected(f"job {job_id} has a workspace already")
        keep_start(data_dir, job_id, partial)
        partial.rename(final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _fsync_folder(final.parent)
    return final


def remove_workspace(data_dir: Path, job_id: str) -> bool:
    """Delete the workspace with all it holds, following no link; False if there was none."""
    path = workspace_path(data_dir, job_id)
    forget_start(data_dir, job_id)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return False
    return True


def list_workspace(
    root: Path, folders: Iterable[str] = ("input", "output"), most: int = MOST_LISTED
) -> Listing:
    """The files (not folders) of `folders`, links and other oddities named as such and never followed."""
    kept: list[Entry] = []
    total = seen = 0
    with _opened(root) as root_fd:
        for folder in folders:
            # A folder that is gone, or was replaced by a link or a file, has nothing to list.
            with contextlib.suppress(NotFound, FileRejected):
                for entry in walk(root_fd, folder):
                    seen += 1
                    if seen > _MOST_WALKED:
                        return Listing(tuple(kept), total, complete=False)
                    if entry.kind == "folder":
                        continue
                    total += 1
                    if len(kept) < most:
                        kept.append(entry)
    return Listing(tuple(kept), total)


def open_file(root: Path, path: str) -> BinaryIO:
    """Open a workspace file for reading. Raises NotFound or FileRejected; never blocks, never leaves the workspace."""
    with _opened(root) as root_fd:
        return open_regular(root_fd, path)


def store_file(root: Path, path: str, source: Path | bytes | BinaryIO, limits: Limits | None = None) -> int:
    """Put a file into the workspace, atomically replacing an older version; returns its size in bytes.

    Raises FileRejected (path, name, or more than `file_bytes`, or the workspace would exceed its total or count):
    then the workspace is as before, missing parent folders aside.
    """
    limits = limits or Limits()
    _check_name(path)
    with _opened(root) as root_fd:
        used = files = 0
        for entry in walk(root_fd, ""):
            used += entry.size
            files += entry.kind != "folder"
        if files >= limits.files:
            raise FileRejected(f"the workspace has {files} files: the limit is {limits.files}")
        return store_beneath(root_fd, path, source, limits, used)


def walk(root_fd: int, path: str, enters: Callable[[Entry], bool] = lambda _: True) -> Iterator[Entry]:
    """Every entry below a folder, depth first, each folder's in the order of their names; links are not followed.

    A folder that `enters` says no to is given, but nothing in it.

    Raises NotFound or FileRejected when `path` itself is not a folder inside the workspace (a link is none). Folders
    that vanish or are swapped meanwhile are skipped. Not a snapshot.
    """
    parts = split_path(path)
    if parts:
        parent_fd = open_folder(root_fd, "/".join(parts[:-1]))
        try:
            _require_folder(parent_fd, parts[-1], path)
        finally:
            os.close(parent_fd)
    yield from _walk(root_fd, "/".join(parts), enters)


def _require_folder(parent_fd: int, name: str, path: str) -> None:
    try:
        status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        raise NotFound(f"{shorten(path)} does not exist") from None
    if not stat.S_ISDIR(status.st_mode):
        raise FileRejected(f"{shorten(path)} is not a folder")


def _walk(root_fd: int, path: str, enters: Callable[[Entry], bool]) -> Iterator[Entry]:
    folder_fd = open_folder(root_fd, path)
    try:
        with os.scandir(folder_fd) as scan:
            found = sorted(scan, key=lambda item: item.name)
        entries = list(_entries(found, path))
    finally:
        os.close(folder_fd)
    for entry in entries:
        yield entry
        if entry.kind == "folder" and enters(entry):
            with contextlib.suppress(NotFound, FileRejected):
                yield from _walk(root_fd, entry.path, enters)


def _entries(found: Iterable[os.DirEntry[str]], path: str) -> Iterator[Entry]:
    for item in found:
        with contextlib.suppress(OSError):  # it went away meanwhile
            status = item.stat(follow_symlinks=False)
            kind = _kind(status.st_mode)
            name = f"{path}/{item.name}" if path else item.name
            size = status.st_size if kind == "file" else 0
            yield Entry(name, kind, size, status.st_mtime, status.st_nlink if kind == "file" else 1)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _copy_inputs(partial: Path, inputs: Iterable[InputFile], limits: Limits) -> None:
    total = 0
    names: set[str] = set()
    root_fd = open_workspace(partial / "input")
    try:
        for count, file in enumerate(inputs, start=1):
            if count > limits.files:
                raise FileRejected(f"too many files: the limit is {limits.files} a job")
            name = _check_name(file.name)
            if name in names:
                raise FileInTheWay(f"two files are named {shorten(name)}")
            names.add(name)
            total += store_beneath(root_fd, name, file.source, limits, total)
    finally:
        os.close(root_fd)


def _check_name(name: str) -> str:
    """The normalised name of a file that comes from outside; raises FileRejected."""
    if not name or name != name.strip():
        raise FileRejected(f"{shorten(name)}: a file name may not be empty or begin or end with a blank")
    if _CONTROL.search(name):
        raise FileRejected(f"{shorten(name)}: a file name may not contain control characters")
    parts = split_path(name)
    if not parts or name.endswith("/"):
        raise FileRejected(f"{shorten(name)} is not a file name")
    if any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        raise FileRejected(f"{shorten(name)}: names beginning with {TEMPORARY_PREFIX} are reserved")
    return "/".join(parts)


def store_beneath(root_fd: int, name: str, source: Path | bytes | BinaryIO, limits: Limits, used: int) -> int:
    """Copy one file below an open folder, under the caps; `used` are the bytes the workspace has already.

    Returns its size. Raises FileRejected; then there is no such file.
    """
    size = 0
    with _reader(source) as read, replacing(root_fd, name) as target:
        while block := read(_BLOCK):
            size += len(block)
            if size > limits.file_bytes:
                raise FileRejected(
                    f"{shorten(name)} is too large: the limit is {human(limits.file_bytes)} a file"
                )
            if used + size > limits.total_bytes:
                raise FileRejected(
                    f"{shorten(name)} does not fit: the limit is {human(limits.total_bytes)} for all files of a job"
                )
            target.write(block)
    return size


@contextlib.contextmanager
def _reader(source: Path | bytes | BinaryIO) -> Iterator[Callable[[int], bytes]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source).read
    elif isinstance(source, Path):
        with _opened_source(source) as file:
            yield file.read
    else:
        yield source.read


def _opened_source(path: Path) -> BinaryIO:
    """The user's own file: links are fine, but a FIFO or device must not hang the command."""
    shown = shorten(str(path))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise FileRejected(f"cannot read {shown}: {os.strerror(error.errno or 0)}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileRejected(f"{shown} is not a regular file")
    return os.fdopen(fd, "rb")


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[int]:
    root_fd = open_workspace(root)
    try:
        yield root_fd
    finally:
        os.close(root_fd)


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def human(size: int) -> str:
    """A size for people: 100 MiB, 1.5 GiB, 12 bytes."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
