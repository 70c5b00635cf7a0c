"""A finished subtask's `output/`, copied into its parent's workspace; either may be hostile (see jobs.resolver)."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import FileRejected, NotFound
from jobs.resolver import TEMPORARY_PREFIX, open_folder, open_regular, open_workspace
from jobs.workspace import Limits, store_beneath, walk

INBOX = "input/subtasks"
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Collected:
    """Where a child's files are now. `left_out` did not fit, or are no plain files; the first of them by name."""

    folder: str
    files: int
    left_out: int
    named: tuple[str, ...]


def collect_outputs(
    child: Path, parent: Path, name: str, *, ended_at: float, limits: Limits, check: Callable[[], None]
) -> Collected:
    """Copies the child's `output/` to `input/subtasks/{name}` of the parent's workspace, as it was at `ended_at`.

    The folder appears whole or not at all, and is left alone if it is there already, so that this may be repeated; a
    child that was retried and ended anew is copied anew. The parent's caps hold: files beyond them are left out.
    `check` is called before each file and may raise. Raises FileRejected or NotFound, also for a full disk.
    """
    with _opened(child) as child_fd, _opened(parent) as parent_fd:
        inbox_fd = open_folder(parent_fd, INBOX, create=True)
        try:
            stamp = int(ended_at * 1e6) * 1000  # microseconds, which every file system keeps
            if _stamp(inbox_fd, name) != stamp:
                _copy_all(child_fd, parent_fd, inbox_fd, name, limits=limits, check=check)
                os.utime(name, ns=(stamp, stamp), dir_fd=inbox_fd, follow_symlinks=False)
        except OSError as error:
            raise FileRejected(f"{INBOX}/{name}: {os.strerror(error.errno or 0)}") from None
        finally:
            os.close(inbox_fd)
        return _compared(child_fd, parent_fd, f"{INBOX}/{name}")


def _copy_all(
    child_fd: int, parent_fd: int, inbox_fd: int, name: str, *, limits: Limits, check: Callable[[], None]
) -> None:
    """The mark that the copy is whole, its time, is set by the caller: a crash before it begins anew."""
    partial = f"{TEMPORARY_PREFIX}{name}"
    for old in (partial, name):
        _remove(inbox_fd, old)
    used = files = 0
    for entry in walk(parent_fd, ""):
        used += entry.size
        files += entry.kind != "folder"
    target_fd = open_folder(inbox_fd, partial, create=True)
    try:
        for path in _plain_files(child_fd):
            check()
            if files >= limits.files:
                break
            with (
                contextlib.suppress(FileRejected, NotFound),
                open_regular(child_fd, f"output/{path}") as file,
            ):
                used += store_beneath(target_fd, path, file, limits, used)
                files += 1
    finally:
        os.close(target_fd)
    os.rename(partial, name, src_dir_fd=inbox_fd, dst_dir_fd=inbox_fd)
    os.fsync(inbox_fd)


def _compared(child_fd: int, parent_fd: int, folder: str) -> Collected:
    """What of the child's files is there: the same answer whenever it is asked."""
    there = {
        entry.path.removeprefix(f"{folder}/") for entry in walk(parent_fd, folder) if entry.kind == "file"
    }
    missing = [path for path in _all_files(child_fd) if path not in there]
    return Collected(folder, len(there), len(missing), tuple(missing[:MOST_NAMED]))


def _plain_files(child_fd: int) -> Iterator[str]:
    return (path for path, plain in _outputs(child_fd) if plain)


def _all_files(child_fd: int) -> Iterator[str]:
    return (path for path, _ in _outputs(child_fd))


def _outputs(child_fd: int) -> Iterator[tuple[str, bool]]:
    """Paths below `output/` of all that is no folder, and whether it is a plain file with one name."""
    with contextlib.suppress(NotFound, FileRejected):  # the agent may have removed it or put a link there
        for entry in walk(child_fd, "output"):
            if entry.kind != "folder":
                yield entry.path.removeprefix("output/"), entry.kind == "file" and entry.links == 1


def _stamp(inbox_fd: int, name: str) -> int | None:
    try:
        status = os.stat(name, dir_fd=inbox_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns if stat.S_ISDIR(status.st_mode) else None


def _remove(folder_fd: int, name: str) -> None:
    """Whatever has this name, following no link."""
    try:
        shutil.rmtree(name, dir_fd=folder_fd)
    except FileNotFoundError:
        return
    except OSError:  # a file or a link
        os.unlink(name, dir_fd=folder_fd)


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    root_fd = open_workspace(root)
    try:
        yield root_fd
    finally:
        os.close(root_fd)
