"""One job's page, its parts, and what is done to it."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from jobs import comments, lifecycle, views
from jobs.api.problems import Problem
from jobs.api.routing import (
    FilesReader,
    Installed,
    JobsReader,
    JobsWriter,
    ReadJob,
    refuse_scripted,
)
from jobs.api.tokens import Principal, Scope
from jobs.audit import record
from jobs.installation import Installation
from jobs.lifecycle import MOST_BUDGET, Budget
from jobs.web.code import highlighted, language_of_file
from jobs.web.conversation import newest
from jobs.web.pages import PageRoute, page
from jobs.web.panels import PICTURES, get_status, side_of
from jobs.web.safe_text import neutral
from jobs.web.words import words_for
from jobs.workspace import open_file, workspace_path
from storage import jobs as store
from storage import looking_back
from storage.live import live_reply
from storage.observing import progress_of

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)
PREVIEW_BYTES = 200_000
PREVIEW_CODE, PREVIEW_SECONDS = 60_000, 0.5  # characters that are highlighted, and the work for them
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


def parse_place(text: str | None) -> tuple[int, int] | None:
    """A place in both sequences, history and transcript. Raises Problem 422."""
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise Problem(422, "InvalidRequest", "that is no place in a job's records")
    return int(match[1]), int(match[2])


def frame(
    request: Request, installation: Installation, job_id: str, principal: Principal, tab: str
) -> dict[str, Any]:
    """What every tab of a job's page has: its state, and how far it was told. Raises JobNotFound."""
    # The place is read before the state: what changes in between is told again, never missed.
    found = progress_of(installation.db, [job_id]).get(job_id)
    status = get_status(installation, job_id, principal.sees, words_for(request))
    place = (found.event_seq, found.message_seq) if found else (0, 0)
    may_write, may_read = principal.may(Scope.JOBS_WRITE), principal.may(Scope.FILES_READ)
    return {
        "status": status,
        "job": status.job,
        "tab": tab,
        "place": place,
        "may_write": may_write,
        "may_read_files": may_read,
    }


@router.get("")
@router.get("/conversation")
def show_job(request: Request, job_id: str, installation: Installed, principal: JobsReader) -> HTMLResponse:
    """The page, with the newest part of the conversation."""
    status = get_status(installation, job_id, principal.sees, words_for(request))
    part = newest(installation, status.job.id)
    # The state is read after the conversation: the page may show more of it than the place says, never less.
    shown = frame(request, installation, job_id, principal, "conversation")
    shown["place"] = part.last
    written = live_reply(installation.db, status.job.id)
    return page(request, "conversation.html", **shown, part=part, written=written)


@router.get("/head")
def show_head(request: Request, job: ReadJob, installation: Installed, principal: JobsReader) -> HTMLResponse:
    """Where the job stands now."""
    return _panels(request, installation, job.id, principal.sees)


@router.get("/older")
def show_older(
    request: Request,
    job: ReadJob,
    installation: Installed,
    principal: JobsReader,
    before: Annotated[str, Query(max_length=30)],
) -> HTMLResponse:
    """What came before a place of the conversation."""
    part = newest(installation, job.id, parse_place(before))
    return page(request, "older.html", job=job, part=part, may_read_files=principal.may(Scope.FILES_READ))


@router.get("/side")
def show_side(request: Request, job: ReadJob, installation: Installed, principal: JobsReader) -> HTMLResponse:
    """Files, todos and subtasks as they are now."""
    side = side_of(installation, job, words_for(request))
    if not principal.may(Scope.FILES_READ):
        side.files.clear()
    return page(request, "side.html", job=job, side=side)


@router.get("/messages/{seq}")
def show_message(job: ReadJob, seq: int, installation: Installed) -> Response:
    """One message of the transcript, whole and plain."""
    found = looking_back.messages_numbered(installation.db, job.id, [seq]) if 0 < seq < 2**31 else []
    if not found:
        raise Problem(404, "NotFound", f"there is no message {seq}")
    return _plain(found[0].content or "")


@router.get("/instruction")
def show_instruction(job: ReadJob, installation: Installed) -> Response:
    """The job's instruction, whole and plain."""
    return _plain(store.get_inputs(installation.db, job.id)[0])


def _plain(text: str) -> Response:
    data = text.encode(errors="replace")
    return Response(data, media_type="text/plain; charset=utf-8")


@router.get("/preview/{path:path}")
def preview(
    request: Request, job_id: str, path: str, installation: Installed, principal: FilesReader
) -> HTMLResponse:
    """A picture; of a text file the beginning, as text or, of a .md, as Markdown."""
    job = views.get_job(installation, job_id, principal.sees)
    if path.lower().endswith(PICTURES):
        picture = f"/jobs/{job.id}/picture/{quote(path, errors='surrogateescape')}"
        return page(
            request, "preview.html", job=job, path=path, picture=picture, text="", code=None, cut=False
        )
    with closing(open_file(workspace_path(installation.settings.data_dir, job.id), path)) as file:
        data = file.read(PREVIEW_BYTES + 1)
    record(installation, "download", principal.owner, job.id, path=path, size=min(len(data), PREVIEW_BYTES))
    text = data[:PREVIEW_BYTES].decode(errors="replace")
    code = highlighted(neutral(text), language_of_file(path), PREVIEW_CODE, PREVIEW_SECONDS)
    cut = len(data) > PREVIEW_BYTES
    return page(request, "preview.html", job=job, path=path, picture=None, text=text, code=code, cut=cut)


@router.post("/comment")
def comment(
    request: Request,
    job_id: str,
    installation: Installed,
    principal: JobsWriter,
    text: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Tells the agent something."""
    comments.add_comment(installation, job_id, principal.sees, _lines(text), principal.owner)
    return _panels(request, installation, job_id, principal.sees)


@router.post("/reply")
def reply(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    job_id: str,
    installation: Installed,
    principal: JobsWriter,
    text: Annotated[str, Form()] = "",
    choice: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Answers the job's question, with a choice or in one's own words."""
    comments.reply(installation, job_id, principal.sees, _lines(choice or text), principal.owner)
    return _panels(request, installation, job_id, principal.sees)


@router.post("/pause")
def pause(request: Request, job_id: str, installation: Installed, principal: JobsWriter) -> HTMLResponse:
    lifecycle.pause(installation, job_id, principal.sees, principal.owner)
    return _panels(request, installation, job_id, principal.sees)


@router.post("/resume")
def resume(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    job_id: str,
    installation: Installed,
    principal: JobsWriter,
    limit: Annotated[str, Form(pattern="^max_(steps|tokens|cost|seconds)$")] = "max_steps",
    amount: Annotated[float | None, Form(gt=0, le=MOST_BUDGET)] = None,
) -> HTMLResponse:
    """Goes on after a pause, with one limit raised where an amount is given."""
    value = None if amount is None else amount if limit in ("max_cost", "max_seconds") else int(amount)
    budget = Budget() if not value else Budget(**{limit: value})  # type: ignore[arg-type]  # whole where it must be
    lifecycle.resume(installation, job_id, principal.sees, principal.owner, budget)
    return _panels(request, installation, job_id, principal.sees)


@router.post("/cancel")
def cancel(request: Request, job_id: str, installation: Installed, principal: JobsWriter) -> HTMLResponse:
    lifecycle.cancel(installation, job_id, principal.sees, principal.owner)
    return _panels(request, installation, job_id, principal.sees)


@router.post("/retry")
def retry(
    request: Request,
    job_id: str,
    installation: Installed,
    principal: JobsWriter,
    model: Annotated[str, Form(max_length=500)] = "",
) -> HTMLResponse:
    """Continues from the last checkpoint, with another model where one is given."""
    chosen = model.strip() or None
    refuse_scripted(principal, chosen)
    lifecycle.retry(installation, job_id, principal.sees, principal.owner, chosen)
    return _panels(request, installation, job_id, principal.sees)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _panels(request: Request, installation: Installation, job_id: str, owner: str | None) -> HTMLResponse:
    """The parts of the page that the action may have changed."""
    status = get_status(installation, job_id, owner, words_for(request))
    return page(request, "job_panels.html", status=status, job=status.job)
