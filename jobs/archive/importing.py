"""`sostenuto import`: the jobs of an archive, into an installation that is empty or not.

Each job comes as a whole or not at all. What an archive holds is read as far as it can be, and everything that cannot is
told with its file and line.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from jobs import audit
from jobs.archive.files import import_workspace
from jobs.archive.opening import (
    ArchivedFolder,
    alone,
    archived_folders,
    contexts_of,
    open_archived,
    opened_folder,
)
from jobs.archive.pruning import finish_removals
from jobs.archive.restored_row import ACTOR, Source, restored_row
from jobs.errors import FileRejected, InvalidPiece, SostenutoError
from jobs.inheritance import go_on_if_ready
from jobs.installation import Installation
from jobs.pieces import freeze, thaw
from jobs.reasons import Reason
from jobs.states import TERMINAL, Event, State
from jobs.wakeups import AGENT_QUEUE, QUEUE_OF_STATE, SUMMARY
from jobs.workspace import FOLDERS, workspace_path
from storage.archive import layout
from storage.archive import restore as store
from storage.archive.conform import Unfit, usual_row
from storage.archive.lines import Tell
from storage.archive.reader import JobFolder
from storage.archive.tasks_db import tasks_of
from storage.archive.writer import sync_disk
from storage.engine import wall_clock
from storage.errors import StorageError
from storage.jobs import job_tx
from storage.models import comments, runs, summaries
from storage.records import NewEvent
from storage.text import clean_json, clean_text

Outcome = Literal["imported", "already_here", "refused"]
_SAID_CHARS = 4000  # of what a job without its conversation is told of it
_MOST_WAKE_UPS = 100  # the sweep wakes the others


@dataclass(frozen=True, slots=True)
class JobImport:
    """What became of one job of an archive. `anew`: its present movement begins again, and it is paused before."""

    job_id: str
    outcome: Outcome
    state: str | None = None
    anew: bool = False
    why: str | None = None


@dataclass(slots=True)
class Owners:
    """Whose jobs become whose: `all_to`, else by name, else as they were."""

    all_to: str | None = None
    by_name: Mapping[str, str] = field(default_factory=dict)

    def of(self, owner: str) -> str:
        return self.all_to or self.by_name.get(owner, owner)


def import_archive(
    installation: Installation,
    archive: Path,
    *,
    owners: Owners,
    tell: Tell,
    told: Callable[[JobImport, int], None],
) -> None:
    """Imports every job of an archive; each one's end is `told`, with the number of all.

    A job that is here already stays as it is. One that cannot be taken is refused; the others come. Raises UsageError
    where there is no archive, StorageError where the database fails: what came before stays, and a repetition goes on.
    """
    contexts = contexts_of(archive)
    found = archived_folders(contexts, tell)
    with alone(installation.settings.data_dir, "this installation's archives"):
        finish_removals(installation)
        tasks = tasks_of(contexts, [folder.job_id for folder in found], tell)
        importer = _Importer(installation, owners, tasks, tell)
        for folder in sorted(found, key=_depth):  # a parent comes before its subtasks
            told(importer.take(folder), len(found))
        importer.settle()


def _depth(folder: ArchivedFolder) -> tuple[int, str]:
    with contextlib.suppress(SostenutoError, OSError, Unfit), opened_folder(folder.path) as fd:
        row = JobFolder(folder.name, lambda name: open_archived(fd, name), lambda _: None).read_row() or {}
        return row.get("depth", 0), folder.job_id
    return 0, folder.job_id


class _Importer:
    def __init__(
        self, installation: Installation, owners: Owners, tasks: Mapping[str, Mapping[str, Any]], tell: Tell
    ) -> None:
        self._installation = installation
        self._db = installation.db
        self._owners = owners
        self._tasks = tasks
        self._tell = tell
        self._seen: list[str] = []  # jobs that are here now, in the order of their depth
        self._wake_ups = 0

    def take(self, found: ArchivedFolder) -> JobImport:
        """One job. Raises StorageError where the database fails, OSError where this machine's disk does."""
        try:
            with opened_folder(found.path) as fd:
                folder = JobFolder(found.name, lambda name: open_archived(fd, name), self._tell)
                if store.stored_row(self._db, found.job_id) is not None:
                    return self._compared(folder, found.job_id)
                return self._imported(folder, found, fd)
        except StorageError:
            raise
        except (SostenutoError, Unfit) as error:
            return self._refused(found.job_id, str(error))

    def _refused(self, job_id: str, why: str) -> JobImport:
        return JobImport(job_id, "refused", why=why)

    def _compared(self, folder: JobFolder, job_id: str) -> JobImport:
        """A job that is here already: the same one, or another one with its id."""
        stored, archived = store.stored_row(self._db, job_id), folder.read_row()
        assert stored is not None
        inputs = folder.read_inputs()
        same = archived is None or archived.get("created_at") in {None, stored["created_at"]}
        if inputs is not None and archived is not None:
            same = same and clean_json(list(inputs)) == list(store.stored_inputs(self._db, job_id) or ())
        if not same or not store.holds_messages(self._db, job_id, folder.messages()):
            return self._refused(job_id, "another job with this id, or another course of it, is here")
        self._seen.append(job_id)
        return JobImport(job_id, "already_here", stored["state"])

    def _imported(self, folder: JobFolder, found: ArchivedFolder, fd: int) -> JobImport:
        archived, source = self._source(folder, found)
        row: dict[str, Any] = {}
        anew = False

        def finish() -> Mapping[str, Any]:
            nonlocal row, anew
            row, anew = restored_row(archived, source, folder.found)
            self._fit_in(folder, row)
            return row

        inputs = (source.instruction, self._frozen)
        rows = self._rows(folder, source)
        data_dir = self._installation.settings.data_dir
        with _Workspace(data_dir, found.job_id) as workspace:
            import_workspace(fd, workspace.partial, self._tell, found.name)
            workspace.settle()
            record = audit.entry(
                "import",
                self._installation.settings.owner,
                found.job_id,
                owner=source.owner,
                folder=found.folder,
            )
            store.restore_job(
                self._db,
                found.job_id,
                inputs,
                rows,
                finish=finish,
                before_commit=lambda: workspace.place(needed=State(row["state"]) not in TERMINAL),
                audit=record,
            )
        self._seen.append(found.job_id)
        self._wake(found.job_id, row)
        return JobImport(found.job_id, "imported", row["state"], anew)

    def _source(self, folder: JobFolder, found: ArchivedFolder) -> tuple[dict[str, Any], Source]:
        """The archived row, and what else there is to know before the transcript is read."""
        archived, inputs = folder.read_row(), folder.read_inputs()
        metadata = folder.read_document(layout.METADATA) or {}
        if "uuid" in metadata and metadata["uuid"] != found.job_id:
            folder.tell(layout.METADATA, None, "names another job; the folder's name counts")
        whole = archived is not None and inputs is not None
        library = self._installation.library
        if inputs is None:
            piece = library.get("general")
            self._frozen = freeze(piece)
            instruction = _first_said(folder) or " ".join(
                str(metadata.get(name) or "") for name in ("task_type", "task_identifier")
            )
        else:
            instruction, self._frozen = inputs
            try:
                piece = thaw(self._frozen)
            except InvalidPiece as error:
                folder.lose(layout.INPUTS, None, f"{error}: the piece general takes its place")
                piece, whole = library.get("general"), False
                self._frozen = freeze(piece)
        owner = (archived or {}).get("owner") or self._installation.settings.owner
        has_final = folder.open(layout.FINAL_SUMMARY)
        if has_final is not None:
            has_final.close()
        return archived or {}, Source(
            found.job_id,
            found.folder,
            self._owners.of(owner),
            clean_text(instruction).strip() or "(an imported job)",
            piece,
            metadata,
            self._tasks.get(found.job_id, {}),
            has_final is not None,
            whole,
            self._db.clock(),
        )

    def _rows(self, folder: JobFolder, source: Source) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The rows to insert: the archive's, and what stands for those that are missing."""
        has_final = False
        pending: list[dict[str, Any]] = []
        for table, row in folder.tables():
            if table is runs:
                pending.append(row)
                continue
            has_final = has_final or (table is summaries and row["kind"] == "final")
            yield table, row
        taken = store.taken_runs(self._db, [run["id"] for run in pending])
        for run in pending:
            if run["id"] in taken:
                folder.tell(layout.RUNS, None, f"run {run['id'][:80]!r} is another job's here, skipped")
            else:
                yield runs, run
        text = None if has_final else folder.read_text(layout.FINAL_SUMMARY)
        if text:
            yield summaries, usual_row(summaries, self._final_summary(folder, text, source))
        if not source.whole and source.folder != layout.COMPLETED:
            yield comments, usual_row(comments, self._remark(folder))

    def _final_summary(self, folder: JobFolder, text: str, source: Source) -> dict[str, Any]:
        found = folder.found
        number = found.last["summaries"] = found.last.get("summaries", 0) + 1
        last = found.last.get("messages", 0)
        counts = {"first_seq": min(1, last), "last_seq": last, "message_count": last}
        sizes = dict.fromkeys(("tokens", "tokens_before", "tokens_after"), 0)
        at = found.last_at or source.now
        return {
            "number": number, "kind": "final", "content": clean_text(text), "visit": 1,
            "created_at": at, **counts, **sizes,
        }  # fmt: skip

    def _remark(self, folder: JobFolder) -> dict[str, Any]:
        """What the agent of a job that begins anew should know of its first life."""
        found = folder.found
        number = found.last["comments"] = found.last.get("comments", 0) + 1
        text = "This job was imported without its conversation."
        if found.last_said:
            text += f" What its agent said last:\n\n{found.last_said[:_SAID_CHARS]}"
        at = found.last_at or self._db.clock()
        return {
            "number": number, "kind": "comment", "author": "system", "text": text, "created_at": at,
        }  # fmt: skip

    def _fit_in(self, folder: JobFolder, row: dict[str, Any]) -> None:
        """What other jobs here decide."""
        if not store.free_key(self._db, row["owner"], row["idempotency_key"]):
            folder.tell(layout.JOB, None, "its idempotency key is another job's here, left out")
            row["idempotency_key"] = None
        parent = row["parent_id"]
        if parent is not None and (parent == row["id"] or store.stored_row(self._db, parent) is None):
            folder.tell(layout.JOB, None, f"its parent {parent[:80]!r} is not here: it stands alone now")
            row["parent_id"] = None

    def _wake(self, job_id: str, row: Mapping[str, Any]) -> None:
        """Tells the workers; the sweep tells them whatever this does not."""
        if row["state"] == State.INHERITING:
            go_on_if_ready(self._installation, job_id)
        queue = QUEUE_OF_STATE.get(State(row["state"]))
        if row["summary_state"] == "pending":
            queue = SUMMARY
        if queue is not None and self._wake_ups < _MOST_WAKE_UPS:
            self._wake_ups += 1
            self._installation.wakeups.send(queue, job_id)

    def settle(self) -> None:
        """Parents count the subtasks that are here; one that would wait for none goes on."""
        for job_id in reversed(self._seen):
            settle_parent(self._installation, job_id)


def settle_parent(installation: Installation, job_id: str) -> None:
    """Corrects the job's count of open subtasks, where it is wrong: an archive may not have brought all of them."""
    real = store.real_children_open(installation.db, job_id)
    if real is None:
        return
    goes_on = False
    with job_tx(installation.db, job_id) as job:
        state = State(job.row["state"])
        values: dict[str, Any] = {"children_open": real}
        event = NewEvent("subtasks_counted", ACTOR, data={"open": real})
        if real == 0 and state is State.WAITING_SUBTASKS:
            values |= {"state": State.QUEUED, "reason": Reason.SUBTASKS_DONE, "reason_data": None}
            values |= {"available_at": wall_clock(), "woken_at": wall_clock()}
            event = NewEvent(Event.SUBTASKS_DONE, ACTOR, state, State.QUEUED)
            goes_on = True
        elif real == 0 and state is State.PAUSED and job.row["resume_state"] == State.WAITING_SUBTASKS:
            values["resume_state"] = State.QUEUED
        job.update(values, event)
    if goes_on:
        installation.wakeups.send(AGENT_QUEUE, job_id)


def _first_said(folder: JobFolder) -> str | None:
    again = folder.again()
    for _ in again.messages():
        if again.found.first_said is not None:
            break
    return again.found.first_said


class _Workspace:
    """A workspace that is made beside its place, and put there just before the job is committed."""

    def __init__(self, data_dir: Path, job_id: str) -> None:
        self._final = workspace_path(data_dir, job_id)
        self._mark = self._final.with_name(f".{job_id}.importing")  # the folder in place is an import's
        self.partial = self._final.with_name(f".{job_id}.partial")

    def __enter__(self) -> Self:
        self._final.parent.mkdir(parents=True, exist_ok=True)
        if self._final.exists():
            if not self._mark.exists():
                raise FileRejected(
                    f"{self._final} is there already, and belongs to no job",
                    hint="move it away, then try again",
                )
            shutil.rmtree(self._final)
        shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir()
        return self

    def settle(self) -> None:
        """What was put into it is on the disk when this returns."""
        if any(self.partial.iterdir()):
            sync_disk(self.partial)

    def place(self, *, needed: bool) -> None:
        """Where the archive has none, only a job that goes on needs one."""
        if not needed and not any(self.partial.iterdir()):
            self.partial.rmdir()
            return
        for folder in FOLDERS:
            (self.partial / folder).mkdir(exist_ok=True)
        self._mark.touch()
        self.partial.rename(self._final)
        sync_disk(self._final.parent)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._mark.unlink(missing_ok=True)
            return
        shutil.rmtree(self.partial, ignore_errors=True)
        if isinstance(error, SostenutoError) and not isinstance(error, StorageError) and self._mark.exists():
            shutil.rmtree(self._final, ignore_errors=True)
            self._mark.unlink()
