"""The tabs of a job's page beside its conversation, each with its own address and its own data: see docs/page.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response

from jobs import views
from jobs.api.problems import Problem
from jobs.api.routing import FilesReader, Installed, JobsReader, ReadJob
from jobs.api.tokens import Scope
from jobs.audit import record
from jobs.context_view import read_context
from jobs.errors import SostenutoError
from jobs.exchanges import read_exchange
from jobs.installation import Installation
from jobs.notes import get_notes
from jobs.pieces import thaw
from jobs.views import JobView
from jobs.web.changes import diff_of, tree_of
from jobs.web.context_tab import newest_exchanges, request_of, view_of
from jobs.web.conversation import replaced
from jobs.web.family import family_of
from jobs.web.graph import graph_of
from jobs.web.job_routes import frame, parse_place
from jobs.web.pages import PageRoute, page
from jobs.web.pictures import HEADERS, kind_of
from jobs.web.waterfall import waterfall_of
from jobs.web.words import words_for
from storage import jobs as store
from storage import looking_back
from storage.images import load_images
from storage.summaries import summaries_of_messages

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)
HISTORY_ROWS = 100
HIGHEST = 2**31 - 1
Place = Annotated[str | None, Query(max_length=30)]


@router.get("/progress")
def show_progress(
    request: Request, job_id: str, installation: Installed, principal: JobsReader, before: Place = None
) -> HTMLResponse:
    """Where the time went, where the job stands in its piece, what the agent noted, its subtasks."""
    shown = frame(request, installation, job_id, principal, "progress")
    job: JobView = shown["job"]
    fall = waterfall_of(installation, job.id, job.state, parse_place(before))
    return page(
        request, "progress.html", **shown, fall=fall, before=before, **_work(request, installation, job)
    )


def _work(request: Request, installation: Installation, job: JobView) -> dict[str, Any]:
    notes = get_notes(installation, job.id)
    piece = thaw(store.get_inputs(installation.db, job.id)[1])
    seen = {lesson.movement for lesson in notes.lessons}
    return {
        "notes": notes,
        "graph": graph_of(piece, job.movement, seen),
        "family": family_of(installation, job, words_for(request)),
    }


@router.get("/files")
def show_files(request: Request, job_id: str, installation: Installed, principal: JobsReader) -> HTMLResponse:
    """The files as a tree, with what changed since the start."""
    shown = frame(request, installation, job_id, principal, "files")
    may_read = principal.may(Scope.FILES_READ)
    return page(
        request,
        "files.html",
        **shown,
        tree=tree_of(installation, shown["job"].id) if may_read else None,
        may_write_files=principal.may(Scope.FILES_WRITE),
        max_file_bytes=installation.settings.max_file_bytes,
    )


@router.get("/diff/{path:path}")
def show_diff(
    request: Request, job_id: str, path: str, installation: Installed, principal: FilesReader
) -> HTMLResponse:
    """A submitted file against what it is now."""
    job = views.get_job(installation, job_id, principal.sees)
    lines, size = diff_of(installation, job.id, path)
    record(installation, "download", principal.owner, job.id, path=path, size=size)
    return page(request, "diff.html", job=job, path=path, lines=lines)


@router.get("/context")
def show_context(
    request: Request, job_id: str, installation: Installed, principal: JobsReader
) -> HTMLResponse:
    """How full the context is. What is in it takes a second to find out, and is asked for by the page."""
    shown = frame(request, installation, job_id, principal, "context")
    return page(request, "context.html", **shown, exchanges=newest_exchanges(installation, shown["job"].id))


@router.get("/context/now")
def show_context_now(request: Request, job: ReadJob, installation: Installed) -> HTMLResponse:
    """What the model would see at its next call, part by part."""
    try:
        view, problem = view_of(read_context(installation, job.id)), None
    except SostenutoError as error:
        view, problem = None, str(error)
    return page(request, "context_now.html", job=job, view=view, problem=problem)


@router.get("/context/request")
def show_request(job: ReadJob, installation: Installed) -> Response:
    """The body of the next request, as JSON."""
    return _json(request_of(read_context(installation, job.id), job.model))


@router.get("/exchanges/{seq}")
def show_exchange(job: ReadJob, seq: int, installation: Installed) -> Response:
    """One call of the model as it is kept: the whole request, and the response as it came."""
    if not 0 < seq <= HIGHEST:
        raise Problem(404, "NotFound", f"there is no exchange {seq}")
    return _json(read_exchange(installation.settings.data_dir, job.id, seq))


def _json(value: Any) -> Response:
    """For reading in the browser; never as a page."""
    data = json.dumps(value, ensure_ascii=False, indent=2).encode(errors="replace")
    return Response(data, media_type="text/plain; charset=utf-8")


@router.get("/history")
def show_history(
    request: Request,
    job_id: str,
    installation: Installed,
    principal: JobsReader,
    before: Annotated[int | None, Query(ge=1, le=HIGHEST)] = None,
) -> HTMLResponse:
    """Every change of the job with who made it and why, newest first."""
    shown = frame(request, installation, job_id, principal, "history")
    events = looking_back.events_before(installation.db, shown["job"].id, before, HISTORY_ROWS)
    return page(request, "history.html", **shown, events=events, before=before)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Where what a summary stands for is shown: ids in it begin with `prefix`."""

    seq: int

    @property
    def prefix(self) -> str:
        return f"r{self.seq}-"


@router.get("/replaced/{seq}")
def show_replaced(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    job: ReadJob,
    seq: int,
    installation: Installed,
    principal: JobsReader,
    before: Annotated[int | None, Query(ge=1, le=HIGHEST)] = None,
) -> HTMLResponse:
    """What the summary that stands as message `seq` replaced."""
    found = summaries_of_messages(installation.db, job.id, [seq]) if 0 < seq <= HIGHEST else []
    if not found:
        raise Problem(404, "NotFound", f"message {seq} is no summary")
    part = replaced(installation, job.id, found[0], before)
    may_read = principal.may(Scope.FILES_READ)
    return page(request, "replaced.html", job=job, part=part, fold=_Fold(seq), may_read_files=may_read)


@router.get("/seen/{sha}")
def show_image(job_id: str, sha: str, installation: Installed, principal: FilesReader) -> Response:
    """An image that the model was shown, as it was sent: decoded and encoded anew when it was read."""
    job = views.get_job(installation, job_id, principal.sees)
    found = load_images(installation.db, job.id, [sha[:200]])
    kind = kind_of(found[0].data) if found else None
    if kind is None:
        raise Problem(404, "NotFound", "there is no such image")
    return Response(found[0].data, media_type=kind, headers=HEADERS)
