"""What a job has done so far: history, transcript, comments, calls, notes, subtasks. Keyset pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from jobs import views
from jobs.api import resources
from jobs.api.resources import Page
from jobs.api.routing import HIGHEST, After, Installed, Limit, ReadJob, TaggedRoute, answer, page, whole
from jobs.api.schemas import call_dict, comment_dict, event_dict, exchange_dict, job_dict, message_dict
from jobs.context_view import read_context
from jobs.exchanges import list_exchanges, read_exchange
from jobs.notes import get_notes
from storage import comments, observing
from storage.records import Message

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["records"], route_class=TaggedRoute)

CALL_CURSOR = r"^[0-9]{1,9}\.[0-9]{1,9}$"


@router.get("/history", response_model=Page[resources.Event])
def list_history(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Response:
    """Every change of the job, oldest first."""
    found = views.list_events(installation, job.id, after, limit + 1)
    return page(request, found, limit, event_dict, after=lambda event: event.seq)


@router.get("/messages", response_model=Page[resources.Message])
def list_messages(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Response:
    """The transcript: everything that was sent to the model, and what it did.

    `summarised_by` is the number of the summary that now stands for a message; null where the model still sees it.
    """
    found = views.list_messages(installation, job.id, after, limit + 1)
    by = views.summarised_by(installation, job.id, found)

    def told(message: Message) -> dict[str, Any]:
        return message_dict(message) | {"summarised_by": by.get(message.seq)}

    return page(request, found, limit, told, after=lambda message: message.seq)


@router.get("/comments", response_model=Page[resources.Comment])
def list_comments(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Response:
    """What people told the agent, and its own questions and result."""
    found = comments.list_comments(installation.db, job.id, after, limit + 1)
    return page(request, found, limit, comment_dict, after=lambda comment: comment.number)


@router.get("/tool-calls", response_model=Page[resources.ToolCall])
def list_tool_calls(
    request: Request,
    job: ReadJob,
    installation: Installed,
    after: Annotated[str, Query(pattern=CALL_CURSOR, description="MESSAGE.POSITION")] = "0.0",
    limit: Limit = 100,
) -> Response:
    """The calls that the model asked for, in its order; each result is the message `result_seq`."""
    seq, position = (int(part) for part in after.split("."))
    found = observing.list_tool_calls(installation.db, job.id, (seq, position), limit + 1)
    return page(request, found, limit, call_dict, after=lambda call: f"{call.message_seq}.{call.position}")


@router.get("/exchanges", response_model=Page[resources.Exchange])
def list_job_exchanges(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Response:
    """The calls of the model that are kept, without their bodies, oldest first."""
    found = list_exchanges(installation.settings.data_dir, job.id, after, limit + 1)
    return page(request, found, limit, exchange_dict, after=lambda exchange: exchange["seq"])


@router.get("/exchanges/{seq}", response_model=resources.WholeExchange)
def get_exchange(
    job: ReadJob, installation: Installed, seq: Annotated[int, Path(ge=1, le=HIGHEST)]
) -> Response:
    """One call of the model: the whole request, and the response as it came."""
    return answer(exchange_dict(read_exchange(installation.settings.data_dir, job.id, seq)))


@router.get("/todos", response_model=Page[resources.Todo])
def list_todos(job: ReadJob, installation: Installed) -> Response:
    """The agent's todo list as it stands."""
    return whole([asdict(todo) for todo in get_notes(installation, job.id).todos])


@router.get("/checklists", response_model=Page[resources.Checklist])
def list_checklists(job: ReadJob, installation: Installed) -> Response:
    """The agent's checklists as they stand."""
    return whole([checklist.as_dict() for checklist in get_notes(installation, job.id).checklists])


@router.get("/plans", response_model=Page[resources.Plan])
def list_plans(job: ReadJob, installation: Installed) -> Response:
    """The plans that the agent recorded, oldest first."""
    return whole(get_notes(installation, job.id).as_dict()["plans"])


@router.get("/lessons", response_model=Page[resources.Lesson])
def list_lessons(job: ReadJob, installation: Installed) -> Response:
    """What each movement handed to the next."""
    return whole(get_notes(installation, job.id).as_dict()["lessons"])


@router.get("/summaries", response_model=Page[resources.Summary])
def list_summaries(
    request: Request, job: ReadJob, installation: Installed, after: After = 0, limit: Limit = 100
) -> Response:
    """The summaries of the job's context (`compaction`) and of the whole job (`final`), oldest first."""
    found = views.list_summaries(installation, job.id, after, limit + 1)
    return page(request, found, limit, views.summary_dict, after=lambda summary: summary.number)


@router.get("/children", response_model=Page[resources.Job])
def list_children(job: ReadJob, installation: Installed) -> Response:
    """The job's subtasks, in the order in which they were begun; a job has no more than `max_subtasks`."""
    return whole([job_dict(child) for child in views.list_children(installation, job.id)])


@router.get("/context", response_model=resources.Context)
def get_context(job: ReadJob, installation: Installed) -> Response:
    """What the model would see at its next call, made by a worker's code in a process of its own: about a second."""
    return answer(read_context(installation, job.id))
