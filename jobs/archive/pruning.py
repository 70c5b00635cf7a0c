"""`sostenuto prune`: ended jobs of a certain age go, with their rows and files, archived before where that is wanted.

A job is archived, and on the disk, before anything of it is removed. It is put out of sight by one short transaction;
then its files go, then its rows, a batch at a time. Whatever dies in between, the next prune or import finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from jobs import audit
from jobs.archive.exporting import AT_ONCE, Archive
from jobs.archive.opening import alone
from jobs.exchanges import forget_exchanges
from jobs.installation import Installation
from jobs.workspace import remove_workspace
from storage import removal as store
from storage.archive.lines import Tell
from storage.jobs import JobRow


@dataclass(slots=True)
class Pruned:
    """What went: `archived` is the number of jobs that are in the archive now, `kept` of those that changed meanwhile."""

    removed: int = 0
    archived: int = 0
    kept: int = 0


def prune(
    installation: Installation,
    older_than: float,
    *,
    archive: Path | None,
    dry_run: bool,
    tell: Tell,
    told: Callable[[JobRow, bool], None],
) -> Pruned:
    """Removes what ended `older_than` seconds ago and is needed by nothing; each job is `told`, and whether it went.

    Jobs stay that are parents of an unfinished subtask, subtasks of a job that stays, continued by an unfinished job, or
    whose final summary is still to be written. Raises StorageError or OSError; what went before is gone, the rest is as
    it was.
    """
    pruned = Pruned()
    if dry_run:
        for row in chain.from_iterable(_batches(installation, older_than, once=True)):
            told(row, True)
            pruned.removed += 1
        return pruned
    with ExitStack() as stack:
        stack.enter_context(alone(installation.settings.data_dir, "this installation's archives"))
        finish_removals(installation)
        writer = None if archive is None else stack.enter_context(Archive(installation, archive, tell))
        for batch in _batches(installation, older_than, once=False):
            if writer is not None:
                pruned.archived += len(writer.add([row["id"] for row in batch]))
            for row in batch:
                gone = _remove(installation, row, older_than, archived=archive is not None)
                pruned.removed += gone
                pruned.kept += not gone
                told(row, gone)
    if pruned.removed:
        store.vacuum(installation.db)
    return pruned


def _batches(installation: Installation, older_than: float, *, once: bool) -> Iterator[list[JobRow]]:
    """Jobs that may go, by id; then, again from the first one, those that the end of others let go: parents."""
    seen: set[str] = set()
    while True:
        after, found = "", len(seen)
        while page := store.removable(installation.db, older_than, after, AT_ONCE):
            after = page[-1]["id"]
            fresh = [row for row in page if row["id"] not in seen]
            seen.update(row["id"] for row in fresh)
            if fresh:
                yield fresh
        if once or len(seen) == found:
            return


def _remove(installation: Installation, row: JobRow, older_than: float, *, archived: bool) -> bool:
    record = audit.entry(
        "remove", installation.settings.owner, row["id"], owner=row["owner"], archived=archived
    )
    if not store.hide_if_removable(installation.db, row, older_than, record):
        return False
    _finish(installation, row["id"])
    return True


def finish_removals(installation: Installation) -> None:
    """Finishes what a prune or an import that died has begun."""
    for job_id in store.unfinished_removals(installation.db):
        _finish(installation, job_id)


def _finish(installation: Installation, job_id: str) -> None:
    """Its files, then its rows: as long as the row is there, the rest can be found again."""
    remove_workspace(installation.settings.data_dir, job_id)
    forget_exchanges(installation.settings.data_dir, job_id)
    store.remove_hidden(installation.db, job_id)
