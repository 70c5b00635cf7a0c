"""Submitting a job: everything is checked, then files, then the row, then the wake-up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uuid_utils

from jobs import audit
from jobs.errors import InvalidInstruction, JobNotFound, PredecessorNotFound, UsageError
from jobs.inheritance import Inheritance, find_inheritance, go_on_if_ready
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.pieces import Choice, freeze
from jobs.reasons import Reason
from jobs.required_mcp import check_required_mcp
from jobs.settings import Settings
from jobs.states import State
from jobs.tracing import TRACE, traceparent
from jobs.views import JobView, get_job, view_of
from jobs.wakeups import AGENT_QUEUE
from jobs.workspace import InputFile, Limits, create_workspace, remove_workspace
from storage import jobs as store
from storage.inheritance import KEY
from storage.limits import QueueRoom
from storage.records import NewEvent
from storage.text import clean_text

TITLE_CHARS = 120
PRIORITIES = range(-1000, 1001)
MAX_KEY_CHARS = 200
MAX_LABEL_CHARS = 500
LATEST = 253_402_300_799.0  # the last second of the year 9999: later times cannot be shown


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submitter gives. Times are epoch seconds; the labels tell which jobs are about the same thing."""

    instruction: str
    piece: str | None = None
    files: Sequence[InputFile] = ()
    task_type: str = "local"
    task_identifier: str | None = None
    repository: str | None = None
    user: str | None = None
    inherits_from: str | None = None
    idempotency_key: str | None = None
    priority: int = 0
    available_at: float | None = None
    budget: Budget = field(default_factory=Budget)
    model: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SubmitReceipt:
    """`created` False: the key was known, the job is the earlier one. `woken` False: the sweep wakes it later."""

    job: JobView
    created: bool
    woken: bool


def submit(installation: Installation, request: SubmitRequest, owner: str) -> SubmitReceipt:
    """Accepts a job. When this returns, the job and its files are committed and will run, whatever happens next.

    With the broker down it answers within about a second and the sweep starts the job later. Raises UsageError and
    its kin for bad input, TooManyQueued where as many wait as may (nothing is kept), StorageError when it could not be committed: a StorageError after a cut
    connection may leave the job accepted, so repeat with the same idempotency key.
    """
    check_request(installation, request)
    choice = installation.library.choose(request.piece, request.instruction)
    try:
        inherited = _inherited(installation, request, owner)
    except PredecessorNotFound:
        # It may have been retried since this very job was accepted.
        known = store.find_job_with_key(installation.db, owner, request.idempotency_key)
        if known is None:
            raise
        return SubmitReceipt(get_job(installation, known, owner), created=False, woken=False)
    job_id = str(uuid_utils.uuid7())
    check_required_mcp(installation, choice.piece)
    settings = installation.settings
    row = new_row(installation, request, choice, job_id, owner)
    if inherited is not None:
        row |= inherited.columns()
    create_workspace(settings.data_dir, job_id, request.files, workspace_limits(settings))
    try:
        stored_id, stored = store.insert_job(
            installation.db,
            row,
            request.instruction,
            freeze(choice.piece),
            NewEvent(
                "submit",
                owner,
                None,
                row["state"],
                {"piece": choice.piece.name, "chosen": choice.reason, **_trace()},
            ),
            *(() if inherited is None else inherited.events),
            audit=audit.entry("submit", owner, job_id, piece=choice.piece.name, files=len(request.files)),
            note=None if inherited is None else inherited.note,
            room=queue_room(settings),
        )
    except Exception:
        discard_files_unless_stored(installation, job_id)
        raise
    if stored is None:
        remove_workspace(settings.data_dir, job_id)
        return SubmitReceipt(get_job(installation, stored_id, owner), created=False, woken=False)
    if stored["state"] == State.INHERITING:
        go_on_if_ready(installation, job_id)  # the summary may have come just before this job
        view = get_job(installation, job_id, owner)
    else:
        view = view_of(stored | {"worker": None})
    due = view.state == State.QUEUED and not _is_scheduled(installation, request)
    woken = due and installation.wakeups.send_and_wait(AGENT_QUEUE, job_id)
    return SubmitReceipt(view, created=True, woken=woken)


def _trace() -> dict[str, str]:
    """What its runs belong to, wherever and whenever they are."""
    parent = traceparent()
    return {} if parent is None else {TRACE: parent}


def _inherited(installation: Installation, request: SubmitRequest, owner: str) -> Inheritance | None:
    key = {name: getattr(request, name) for name in KEY}
    return find_inheritance(installation, owner, key, request.inherits_from, request.instruction)


def check_request(installation: Installation, request: SubmitRequest) -> None:
    """Raises UsageError, or a kind of it, for what no job can be made of."""
    limit = installation.settings.max_instruction_chars
    if not request.instruction.strip():
        raise InvalidInstruction("the instruction is empty", hint="say what is to be done")
    if len(request.instruction) > limit:
        raise InvalidInstruction(
            f"the instruction has {len(request.instruction):,} characters, at most {limit:,} are possible",
            hint="put long material into a file: --file",
        )
    if request.priority not in PRIORITIES:
        raise UsageError(f"the priority {request.priority} is outside -1000 to 1000")
    if request.idempotency_key is not None and not 0 < len(request.idempotency_key) <= MAX_KEY_CHARS:
        raise UsageError(f"an idempotency key has 1 to {MAX_KEY_CHARS} characters")
    if request.available_at is not None and not 0 <= request.available_at <= LATEST:
        raise UsageError("available_at must be a time between 1970 and 9999, in epoch seconds")
    request.budget.given()
    try:
        json.dumps(request.metadata)
    except (TypeError, ValueError, RecursionError):
        raise UsageError("the metadata cannot be written as JSON") from None
    for name in (*KEY, "model", "inherits_from"):
        if len(getattr(request, name) or "") > MAX_LABEL_CHARS:
            raise UsageError(f"{name} is longer than {MAX_LABEL_CHARS} characters")


def new_row(
    installation: Installation, request: SubmitRequest, choice: Choice, job_id: str, owner: str
) -> dict[str, Any]:
    """The columns of the new job's row that differ from their defaults."""
    row: dict[str, Any] = {
        "id": job_id,
        "owner": owner,
        "title": title_of(request.instruction),
        "state": State.QUEUED,
        "reason": Reason.NEW,
        "piece": choice.piece.name,
        "movement": choice.piece.initial_movement,
        "model": request.model,
        **installation.settings.budget.model_dump(),
        **request.budget.given(),
    }
    for name in (
        "task_type",
        "task_identifier",
        "repository",
        "user",
        "idempotency_key",
        "priority",
        "metadata",
    ):
        row[name] = getattr(request, name)
    if _is_scheduled(installation, request):
        row |= {
            "available_at": request.available_at,
            "reason": Reason.SCHEDULED,
            "reason_data": {"until": request.available_at},
        }
    return row


def _is_scheduled(installation: Installation, request: SubmitRequest) -> bool:
    """A time that is past already means now."""
    return request.available_at is not None and request.available_at > installation.db.clock()


def title_of(instruction: str) -> str:
    """The first line that says something, cut."""
    first = next((line.strip() for line in clean_text(instruction).splitlines() if line.strip()), "")
    return first if len(first) <= TITLE_CHARS else first[: TITLE_CHARS - 1] + "…"


def queue_room(settings: Settings) -> QueueRoom | None:
    """How many jobs may wait; None: any number. Subtasks, retries and resumed jobs are never refused."""
    limits = settings.limits
    if limits.max_queued is None and limits.max_queued_per_owner is None:
        return None
    return QueueRoom(limits.max_queued, limits.max_queued_per_owner)


def workspace_limits(settings: Settings) -> Limits:
    """The caps on files that are put into a workspace from outside."""
    return Limits(settings.max_file_bytes, settings.max_workspace_bytes, settings.max_workspace_files)


def discard_files_unless_stored(installation: Installation, job_id: str) -> None:
    """After a cut connection the row may be there all the same: then its files must stay."""
    try:
        get_job(installation, job_id, None)
    except JobNotFound:
        remove_workspace(installation.settings.data_dir, job_id)
    except Exception:  # noqa: BLE001 - still unreachable: a folder too much is better than a job without its files
        return
