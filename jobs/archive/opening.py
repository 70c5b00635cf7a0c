"""Finding an archive's jobs, and opening their files: nothing in it is trusted, and no link is followed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jobs.errors import FileRejected, NotFound, SostenutoError, UsageError
from jobs.resolver import open_beneath, open_workspace, require_regular
from jobs.workspace import workspace_path
from storage.archive import layout
from storage.archive.lines import Problem, Tell


@dataclass(frozen=True, slots=True)
class ArchivedFolder:
    """A job's folder in an archive; `folder` is running, paused or completed."""

    job_id: str
    folder: str
    path: Path

    @property
    def name(self) -> str:
        """Its path in the archive."""
        return f"{self.folder}/{self.job_id}"


def contexts_of(archive: Path) -> Path:
    """The folder with running/, paused/ and completed/: `contexts` in the archive, or the archive itself. Raises UsageError."""
    for folder in (archive / layout.CONTEXTS, archive):
        if any((folder / name).is_dir() for name in layout.FOLDERS):
            return folder
    raise UsageError(
        f"there is no archive in {archive}",
        hint="give the folder that holds contexts/, as sostenuto export wrote it",
    )


def archived_folders(contexts: Path, tell: Tell) -> list[ArchivedFolder]:
    """Every job's folder, by id. What is none is told; of two with one id the one that is further on counts."""
    found: dict[str, ArchivedFolder] = {}
    replaced: list[ArchivedFolder] = []
    for folder in layout.FOLDERS:
        if not (contexts / folder).is_dir():
            continue
        for path in sorted((contexts / folder).iterdir()):
            name = path.name
            if name.startswith(
                "."
            ):  # unfinished, unless it was to be replaced by something that is not there
                if name.endswith(".old"):
                    replaced.append(ArchivedFolder(name[1:].removesuffix(".old"), folder, path))
                continue
            try:
                workspace_path(contexts, name)
            except FileRejected as error:
                tell(Problem(folder, None, f"{error}, skipped"))
                continue
            if path.is_symlink() or not path.is_dir():
                tell(Problem(f"{folder}/{name}", None, "is no folder, skipped"))
            elif name in found:
                tell(Problem(f"{folder}/{name}", None, f"is in {found[name].folder}/ as well, skipped"))
            else:
                found[name] = ArchivedFolder(name, folder, path)
    for old in replaced:
        found.setdefault(old.job_id, old)
    return [found[job_id] for job_id in sorted(found)]


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """A descriptor of a job's folder."""
    fd = open_workspace(path)
    try:
        yield fd
    finally:
        os.close(fd)


def open_archived(folder_fd: int, name: str) -> BinaryIO | None:
    """A plain file of a job's folder; None where there is none. Raises FileRejected for a link or anything else."""
    try:
        fd = open_beneath(folder_fd, name, os.O_RDONLY | os.O_NOFOLLOW)
    except NotFound:
        return None
    try:
        require_regular(os.fstat(fd), name)
    except BaseException:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


class Busy(SostenutoError):
    """Another command works on the same archive, or clears this installation."""

    exit_code = 4


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Only one process at a time is in such a block for this folder; another one is refused. It ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another command uses {what}", hint="wait until it has ended") from None
        yield
    finally:
        os.close(fd)
