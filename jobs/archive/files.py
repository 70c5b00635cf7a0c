"""A job's workspace as it is archived: its files as they are, and a list of all that is in it, with modes and times.

Neither side trusts what it finds: the workspace belongs to an agent, and the archive may come from anywhere. Nothing here
follows a link, and nothing is written outside of the folder that is given.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from jobs.errors import FileRejected, NotFound
from jobs.resolver import (
    open_beneath,
    open_folder,
    open_regular,
    open_workspace,
    require_regular,
    split_path,
)
from jobs.workspace import walk
from storage.archive.layout import FILES, WORKSPACE, line
from storage.archive.lines import Problem, Tell, read_records
from storage.masking import StreamMask

_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def export_workspace(root: Path, folder: Path, tell: Tell, name: str) -> None:
    """Copies a workspace into a job's folder of the archive, registered secrets masked; `name` is that folder's, to tell.

    What cannot be copied is told: pipes, sockets, files with another name outside of the workspace. A workspace that is
    gone leaves nothing.
    """
    try:
        root_fd = open_workspace(root)
    except NotFound:
        return
    try:
        (folder / WORKSPACE).mkdir()
        target_fd = open_workspace(folder / WORKSPACE)
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, target_fd)
            listing = opened.enter_context((folder / FILES).open("wb"))
            names = _names_inside(root_fd)
            for entry in walk(root_fd, ""):
                try:
                    record = _export_entry(root_fd, target_fd, entry.path, entry.kind, names)
                except (FileRejected, NotFound, OSError) as error:
                    _pass_on(error)
                    tell(Problem(f"{name}/{WORKSPACE}", None, f"{_plain(entry.path)} is left out: {error}"))
                else:
                    listing.write(line(record))
    finally:
        os.close(root_fd)


def _pass_on(error: Exception) -> None:
    """A disk that is full or broken is no matter of one file."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        raise error


def _plain(path: str) -> str:
    return repr(path)[:200]


def _names_inside(root_fd: int) -> Counter[tuple[int, int]]:
    """How many names each file with several has in the workspace: with all of them inside it is safe to read."""
    found: Counter[tuple[int, int]] = Counter()
    for entry in walk(root_fd, ""):
        if entry.links > 1:
            with contextlib.suppress(FileRejected, NotFound, OSError):
                status = _status(root_fd, entry.path)
                found[status.st_dev, status.st_ino] += 1
    return found


def _status(root_fd: int, path: str) -> os.stat_result:
    *folders, name = split_path(path)
    parent = open_folder(root_fd, "/".join(folders))
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def _export_entry(
    root_fd: int, target_fd: int, path: str, kind: str, names: Counter[tuple[int, int]]
) -> dict[str, Any]:
    record: dict[str, Any] = {"path": path, "kind": kind}
    if kind == "link":
        *folders, name = split_path(path)
        parent = open_folder(root_fd, "/".join(folders))
        try:
            target = os.readlink(name, dir_fd=parent)
        finally:
            os.close(parent)
        if not target.isprintable():
            raise FileRejected("a link to a name that is no plain text")
        return record | {"target": target}
    if kind == "folder":
        os.close(open_folder(target_fd, path, create=True))
        return record | {"mode": f"{stat.S_IMODE(_status(root_fd, path).st_mode) & 0o777:04o}"}
    if kind != "file":
        raise FileRejected("it is neither a file nor a folder nor a link")
    source = open_beneath(root_fd, path, os.O_RDONLY)
    with os.fdopen(source, "rb") as reader:
        status = os.fstat(source)
        if status.st_nlink == 1 or names[status.st_dev, status.st_ino] < status.st_nlink:
            require_regular(status, path)
        with os.fdopen(open_beneath(target_fd, path, _NEW, 0o600), "wb") as writer:
            mask = StreamMask(writer.write)
            while block := reader.read(_BLOCK):
                mask.feed(block)
            mask.end()
    return record | {"mode": f"{stat.S_IMODE(status.st_mode) & 0o777:04o}", "modified": status.st_mtime_ns}


def import_workspace(job_fd: int, target: Path, tell: Tell, name: str) -> None:
    """Makes the workspace of a job's archived folder in `target`, an empty folder.

    Only plain files with one name, folders, and links that stay inside are made; everything else is told and left out.
    Files that the list does not name, or whose line of it is broken, are taken with usual modes.
    """
    listed = dict(_listed(job_fd, tell, name))
    try:
        source_fd = open_folder(job_fd, WORKSPACE)
    except (NotFound, FileRejected) as error:
        if listed or not isinstance(error, NotFound):
            tell(Problem(f"{name}/{WORKSPACE}", None, f"is left out: {error}"))
        return
    target_fd = open_workspace(target)
    try:
        for entry in walk(source_fd, ""):
            try:
                _import_entry(source_fd, target_fd, entry.path, entry.kind)
            except (FileRejected, NotFound, OSError) as error:
                _pass_on(error)
                tell(Problem(f"{name}/{WORKSPACE}", None, f"{_plain(entry.path)} is left out: {error}"))
        for path, record in reversed(listed.items()):  # what is in a folder before the folder's own mode
            try:
                _finish_entry(target_fd, path, record)
            except (FileRejected, NotFound, OSError, ValueError, TypeError, OverflowError) as error:
                tell(Problem(f"{name}/{FILES}", None, f"{_plain(path)}: {error}"))
    finally:
        os.close(source_fd)
        os.close(target_fd)


def _listed(job_fd: int, tell: Tell, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with open_regular(job_fd, FILES, follow=False) as file:
            for number, record in read_records(file, f"{name}/{FILES}", tell, ("path", "kind")):
                path = record["path"]
                if isinstance(path, str):
                    yield path, record
                else:
                    tell(Problem(f"{name}/{FILES}", number, "path is no text, skipped"))
    except NotFound:
        return
    except FileRejected as error:
        tell(Problem(f"{name}/{FILES}", None, f"is left out: {error}"))


def _import_entry(source_fd: int, target_fd: int, path: str, kind: str) -> None:
    if kind == "folder":
        os.close(open_folder(target_fd, path, create=True))
        return
    if kind == "link":
        raise FileRejected("a link, where only files and folders may lie")
    with open_regular(source_fd, path, follow=False) as reader:
        *folders, _ = split_path(path)
        os.close(open_folder(target_fd, "/".join(folders), create=True))
        with os.fdopen(open_beneath(target_fd, path, _NEW, 0o644), "wb") as writer:
            while block := reader.read(_BLOCK):
                writer.write(block)


def _finish_entry(target_fd: int, path: str, record: dict[str, Any]) -> None:
    """Modes, times and links, when all files are there."""
    parts = split_path(path)
    if not parts:
        raise FileRejected("no path")
    *folders, name = parts
    is_link = record["kind"] == "link"
    parent = open_folder(target_fd, "/".join(folders), create=is_link)  # `create` follows no link on the way
    try:
        if is_link:
            os.symlink(_harmless(record.get("target"), len(folders)), name, dir_fd=parent)
            return
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise FileRejected("it is neither a file nor a folder")
        os.chmod(name, int(str(record.get("mode")), 8) & 0o777, dir_fd=parent)
        if stat.S_ISREG(status.st_mode) and record.get("modified") is not None:
            at = int(record["modified"])
            os.utime(name, ns=(at, at), dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def _harmless(target: object, depth: int) -> str:
    """The target of a link in a folder so deep, if it stays inside the workspace whatever other links it passes."""
    if isinstance(target, str) and target.isprintable() and target and not target.startswith("/"):
        parts = [part for part in target.split("/") if part not in {"", "."}]
        ups = len(list(takewhile(lambda part: part == "..", parts)))
        if ups <= depth and ".." not in parts[ups:]:
            return target
    raise FileRejected("a link that leads outside of the workspace, left out")
