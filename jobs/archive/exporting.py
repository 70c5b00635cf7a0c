"""`sostenuto export`: jobs as folders of an archive, each of one moment, each in its place only when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jobs.archive.files import export_workspace
from jobs.archive.opening import alone, open_archived, opened_folder
from jobs.archive.renderer import Renderer
from jobs.errors import JobNotFound, SostenutoError
from jobs.installation import Installation
from jobs.workspace import workspace_path
from storage.archive import layout
from storage.archive.lines import Tell
from storage.archive.reader import JobFolder
from storage.archive.tasks_db import TasksDb, missing_row
from storage.archive.writer import Places, write_job
from storage.crashpoints import CrashPoint, crash_point
from storage.listing import JobFilter, find_jobs
from storage.subtasks import list_descendants

AT_ONCE = 64  # jobs that reach the disk together
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Exported:
    """A job whose folder is in its place: its row as it is archived."""

    job_id: str
    folder: Path
    row: Mapping[str, Any]


class Archive:
    """An archive that is being written to, by this process alone. Use it as a context manager.

    When the block ends in order, tasks.db tells of every job in it.
    """

    def __init__(self, installation: Installation, root: Path, tell: Tell) -> None:
        self._installation = installation
        self._root = root
        self._tell = tell
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(alone(self._root, f"the archive {self._root}"))
            self._places = Places(self._root)
            self._tasks = TasksDb(self._places.contexts)
            stack.callback(self._tasks.close)
            self._render = stack.enter_context(Renderer())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._stack:
            if error is None:
                present = {path.name: path for _, path in self._places.job_folders()}
                self._tasks.finish(iter(present), lambda job_id: _row_of_folder(present[job_id]))

    def add(self, job_ids: Sequence[str]) -> list[Exported]:
        """Writes these jobs, and returns those that were there; all of them are on the disk then. Raises OSError."""
        written: list[tuple[str, Path, Mapping[str, Any]]] = []
        for job_id in job_ids:
            partial = self._places.begin(job_id)
            try:
                row = self._write(job_id, partial)
            except JobNotFound:
                self._places.give_up(partial)
                continue
            written.append((job_id, partial, row))
        self._places.settle()
        crash_point(CrashPoint.EXPORT_WRITTEN)
        exported = []
        for job_id, partial, row in written:
            place = self._places.place(job_id, partial, row["state"])
            crash_point(CrashPoint.EXPORT_PLACED)
            self._tasks.put(layout.task_of(row))
            exported.append(Exported(job_id, place, row))
        self._places.settle()
        return exported

    def _write(self, job_id: str, partial: Path) -> Mapping[str, Any]:
        db, data_dir = self._installation.db, self._installation.settings.data_dir
        row = write_job(db, job_id, partial, self._render)
        name = f"{layout.folder_of(row['state'])}/{job_id}"
        export_workspace(workspace_path(data_dir, job_id), partial, self._tell, name)
        return row


def _row_of_folder(path: Path) -> dict[str, Any] | None:
    """The line of tasks.db for a job that another export, which died, left in its place."""
    try:
        with opened_folder(path) as fd:
            folder = JobFolder(path.name, lambda name: open_archived(fd, name), lambda _: None)
            return missing_row(folder, path.name, path.parent.name)
    except (SostenutoError, ValueError, OSError):
        return None


def export_jobs(
    installation: Installation,
    root: Path,
    job_ids: Iterator[str],
    *,
    tell: Tell,
    told: Callable[[Exported], None],
) -> None:
    """Exports these jobs into the archive `root`; each one is `told` when it is in its place and on the disk.

    A running job is exported as of its last checkpoint, its workspace as it is a moment later. Raises OSError where the
    archive cannot be written, StorageError where the database fails; what was told stays, and a repetition goes on.
    """
    with Archive(installation, root, tell) as archive:
        for batch in _batches(job_ids):
            for exported in archive.add(batch):
                told(exported)


def _batches(job_ids: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for job_id in job_ids:
        batch.append(job_id)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def with_subtasks(installation: Installation, job_ids: Sequence[str]) -> list[str]:
    """These jobs and all their subtasks, each once, parents first."""
    found = dict.fromkeys(job_ids)
    for job_id in job_ids:
        found.update(dict.fromkeys(sorted(row["id"] for row in list_descendants(installation.db, job_id))))
    return list(found)


def ids_that_fit(installation: Installation, wanted: JobFilter) -> Iterator[str]:
    """The ids of all jobs that fit, oldest first, a page at a time."""
    after: str | None = None
    while page := find_jobs(installation.db, wanted, _PAGE, after=after, oldest_first=True):
        yield from (row["id"] for row in page)
        after = page[-1]["id"]
