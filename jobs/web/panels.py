"""What the page shows of a job beside its conversation: where it stands, what it asks, what can be done to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from jobs import views
from jobs.checklists import Checklist, current_checklists
from jobs.errors import SostenutoError
from jobs.installation import Installation
from jobs.states import TERMINAL, State
from jobs.todos import Todo, current_todos
from jobs.views import JobView
from jobs.web.meters import Meter, meter_of
from jobs.web.reasons import what_next, why
from jobs.web.templating import render
from jobs.web.words import Words
from jobs.workspace import Entry, list_workspace, workspace_path
from storage import jobs as store
from storage import subtasks
from storage.timeline import Holder, holder_of

BUDGETS = {"steps": "max_steps", "tokens": "max_tokens", "cost": "max_cost", "time": "max_seconds"}
FILES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Status:
    """A job in the words of the page."""

    job: JobView
    why: str
    next: str
    raises: str | None = None  # the budget that ran out, by the name of its limit
    suggested: float | None = None  # what it may be raised to
    meter: Meter | None = None
    holder: Holder | None = None  # who works on it now; None also where nobody looked
    renewed_at: float | None = None  # the holder's lease

    @property
    def ended(self) -> bool:
        return self.job.state in TERMINAL

    @property
    def can_retry(self) -> bool:
        return self.ended and self.job.state != State.SUCCEEDED


def status_of(row: Mapping[str, Any], words: Words, installation: Installation) -> Status:
    """How a job's row is told."""
    zone = installation.settings.zone()
    data = row["reason_data"] or {}
    raises = BUDGETS.get(str(data.get("budget"))) if row["reason"] == "budget_exceeded" else None
    limit = data.get("limit")
    suggested = limit * 2 if raises and isinstance(limit, int | float) else None
    told, following = why(row, words, zone), what_next(row, words, zone)
    return Status(views.view_of(row), told, following, raises, suggested, meter_of(row))


def get_status(installation: Installation, job_id: str, owner: str | None, words: Words) -> Status:
    """The job's status now, with who works on it. Raises JobNotFound, also when it is someone else's."""
    row = store.get_job(installation.db, job_id, owner)
    status = status_of(row, words, installation)
    if (queue := views.queue_without_workers(installation, row)) is not None:
        told, following = words("reason.unserved", queue=queue), words("next.unserved", queue=queue)
        return replace(status, why=told, next=following)
    holder = holder_of(installation.db, row["run_id"])
    if holder is None:
        return status
    # The worker's lease may be a longer one than this process is set to.
    renewed_at = holder.lease_expires_at - installation.settings.lease_seconds
    return replace(status, holder=holder, renewed_at=min(renewed_at, installation.db.clock()))


def panels_html(installation: Installation, job_id: str, owner: str | None, words: Words) -> str:
    """The parts of a job's page that change with its state, each with an id of its own. Raises JobNotFound."""
    status = get_status(installation, job_id, owner, words)
    return render("job_panels.html", words, installation.settings.zone(), status=status, job=status.job)


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file in a list: `url` None for what is not a plain file."""

    path: str
    size: int
    url: str | None
    preview: str | None


@dataclass(frozen=True, slots=True)
class Side:
    """What lies beside the conversation: files, todos and checklists, subtasks."""

    files: list[ShownFile]
    files_total: int
    todos: tuple[Todo, ...]
    checklists: tuple[Checklist, ...]
    children: list[Status]


def side_of(installation: Installation, job: JobView, words: Words) -> Side:
    """The caller has checked the owner."""
    files, total = files_of(installation, job.id)
    db = installation.db
    todos = current_todos(db, job.id).items
    return Side(
        files,
        total,
        todos,
        tuple(current_checklists(db, job.id).values()),
        children_of(installation, job, words),
    )


def children_of(installation: Installation, job: JobView, words: Words) -> list[Status]:
    """The job's subtasks, in the order in which they were begun."""
    if not job.children_total:
        return []
    return [
        status_of({**row, "worker": None}, words, installation)
        for row in subtasks.list_children(installation.db, job.id)
    ]


def files_of(installation: Installation, job_id: str) -> tuple[list[ShownFile], int]:
    """The files in input/ and output/ and how many there are; none where the folder is gone."""
    try:
        listing = list_workspace(workspace_path(installation.settings.data_dir, job_id), most=FILES_SHOWN)
    except SostenutoError:
        return [], 0
    # What was delivered comes first.
    entries = sorted(listing.entries, key=lambda entry: not entry.path.startswith("output/"))
    return [_shown(job_id, entry) for entry in entries], listing.total


PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_READABLE = (".md", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".log", ".py", ".js", ".ts",
             ".sh", ".sql", ".xml", ".html", ".css", ".rst", ".ini", ".diff", ".patch")  # fmt: skip


def can_be_previewed(path: str) -> bool:
    """Whether a file of this name is text or a picture that the page shows."""
    return path.lower().endswith((*_READABLE, *PICTURES))


def _shown(job_id: str, entry: Entry) -> ShownFile:
    path = entry.path.encode(errors="surrogateescape").decode(errors="replace")
    if entry.kind != "file":
        return ShownFile(f"{path} ({entry.kind})", 0, None, None)
    quoted = quote(entry.path, errors="surrogateescape")
    preview = f"/jobs/{job_id}/preview/{quoted}" if can_be_previewed(entry.path) else None
    return ShownFile(path, entry.size, f"/api/jobs/{job_id}/files/{quoted}", preview)
