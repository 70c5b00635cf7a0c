"""What a job has done so far: history, transcript, comments, calls, notes, subtasks. Keyset pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from jobs import views
from jobs.api.routing import HIGHEST, After, Installed, Limit, ReadJob, page
from jobs.api.schemas import Page, call_dict, comment_dict, event_dict, exchange_dict, job_dict, message_dict
from jobs.exchanges import list_exchanges, read_exchange
from jobs.notes import get_notes
from storage import jobs as store
from storage import observing
from storage.records import Message

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["records"])


@router.get("/history")
def history(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Page:
    """Every change of the job, oldest first."""
    found = views.list_events(installation, job.id, after, limit + 1)
    return page(request, found, limit, event_dict, after=lambda event: event.seq)


@router.get("/messages")
def messages(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Page:
    """The transcript: everything that was sent to the model, and what it did.

    `summarised_by` is the number of the summary that now stands for a message; null where the model still sees it.
    """
    found = views.list_messages(installation, job.id, after, limit + 1)
    by = views.summarised_by(installation, job.id, found)

    def told(message: Message) -> dict[str, Any]:
        return message_dict(message) | {"summarised_by": by.get(message.seq)}

    return page(request, found, limit, told, after=lambda message: message.seq)


@router.get("/comments")
def comments(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Page:
    """What people told the agent, and its own questions and result."""
    found = store.list_comments(installation.db, job.id, after, limit + 1)
    return page(request, found, limit, comment_dict, after=lambda comment: comment.number)


@router.get("/tool-calls")
def tool_calls(
    request: Request,
    job: ReadJob,
    installation: Installed,
    after: Annotated[str, Query(pattern=r"^\d{1,9}\.\d{1,9}$", description="MESSAGE.POSITION")] = "0.0",
    limit: Limit = 100,
) -> Page:
    """The calls that the model asked for, in its order; each result is the message `result_seq`."""
    seq, position = (int(part) for part in after.split("."))
    found = observing.list_tool_calls(installation.db, job.id, (seq, position), limit + 1)
    return page(request, found, limit, call_dict, after=lambda call: f"{call.message_seq}.{call.position}")


@router.get("/exchanges")
def exchanges(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Page:
    """The calls of the model that are kept, without their bodies, oldest first."""
    found = list_exchanges(installation.settings.data_dir, job.id, after, limit + 1)
    return page(request, found, limit, exchange_dict, after=lambda exchange: exchange["seq"])


@router.get("/exchanges/{seq}")
def exchange(
    job: ReadJob, installation: Installed, seq: Annotated[int, Path(ge=1, le=HIGHEST)]
) -> dict[str, Any]:
    """One call of the model: the whole request, and the response as it came."""
    return exchange_dict(read_exchange(installation.settings.data_dir, job.id, seq))


@router.get("/todos")
def todos(job: ReadJob, installation: Installed) -> Page:
    """The agent's todo list as it stands."""
    return Page(items=[asdict(todo) for todo in get_notes(installation, job.id).todos])


@router.get("/checklists")
def checklists(job: ReadJob, installation: Installed) -> Page:
    """The agent's checklists as they stand."""
    return Page(items=[checklist.as_dict() for checklist in get_notes(installation, job.id).checklists])


@router.get("/plans")
def plans(job: ReadJob, installation: Installed) -> Page:
    """The plans that the agent recorded, oldest first."""
    return Page(items=get_notes(installation, job.id).as_dict()["plans"])


@router.get("/lessons")
def lessons(job: ReadJob, installation: Installed) -> Page:
    """What each movement handed to the next."""
    return Page(items=get_notes(installation, job.id).as_dict()["lessons"])


@router.get("/summaries")
def summaries(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Page:
    """The summaries of the job's context (`compaction`) and of the whole job (`final`), oldest first."""
    found = views.list_summaries(installation, job.id, after, limit + 1)
    return page(request, found, limit, views.summary_dict, after=lambda summary: summary.number)


@router.get("/children")
def children(job: ReadJob, installation: Installed) -> Page:
    """The job's subtasks, in the order in which they were begun; a job has no more than `max_subtasks`."""
    return Page(items=[job_dict(child) for child in views.list_children(installation, job.id)])
