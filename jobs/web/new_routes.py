"""The page on which a task is given."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from jobs.api.gate import MAX_BODY_BYTES
from jobs.api.problems import Problem
from jobs.api.routing import Installed, JobsWriter, refuse_scripted
from jobs.api.schemas import JobBody
from jobs.api.tokens import Principal, Scope
from jobs.errors import PredecessorNotFound, UsageError
from jobs.installation import Installation
from jobs.states import TERMINAL, State
from jobs.submit import SubmitRequest, submit
from jobs.web import mistakes
from jobs.web.graph import graph_of
from jobs.web.pages import PageRoute, page
from jobs.web.words import Words, words_for
from jobs.workspace import InputFile
from storage.listing import JobFilter, find_jobs

router = APIRouter(route_class=PageRoute)
INHERITABLE = [state for state in State if state in TERMINAL]
OFFERED = 20  # of the ended jobs, to go on from
LABELS = ("task_type", "task_identifier", "repository", "user", "model", "inherits_from")
LIMITS = ("max_steps", "max_tokens", "max_cost", "max_seconds")


class _Refused(Exception):
    """What is wrong with the form: messages by field."""

    def __init__(self, **errors: str) -> None:
        super().__init__(errors)
        self.errors = errors


@router.get("/new")
def show_form(
    request: Request,
    installation: Installed,
    principal: JobsWriter,
    inherits_from: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """The form, with a key of its own: sending it twice makes one job. As a follow-up it names its predecessor."""
    pieces = [entry for entry in installation.library.entries() if entry.piece and not entry.problems]
    return page(
        request,
        "new.html",
        pieces=pieces,
        key=secrets.token_urlsafe(18),
        inherits_from=inherits_from,
        ended=find_jobs(installation.db, JobFilter(principal.owner, INHERITABLE), OFFERED),
        settings=installation.settings,
        may_upload=principal.may(Scope.FILES_WRITE),
        labels=[name for name in LABELS if name in JobBody.model_fields],
        budget=installation.settings.budget.model_dump(),
    )


@router.get("/new/graph/{name}")
def show_graph(request: Request, name: str, installation: Installed, _: JobsWriter) -> Response:
    """A piece as a picture. Raises UnknownPiece, InvalidPiece."""
    return page(request, "new_graph.html", name=name, graph=graph_of(installation.library.get(name)))


@router.post("/new")
async def send_form(request: Request, installation: Installed, principal: JobsWriter) -> Response:
    """Submits the task, and leads on to its job. What is wrong is told beside its field; nothing is kept then."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "UnsupportedMediaType", "send the form as multipart/form-data")
    most = installation.settings.max_workspace_files
    async with request.form(max_files=most, max_fields=40, max_part_size=MAX_BODY_BYTES) as form:
        try:
            asked = _asked(installation, principal, form, words_for(request))
            receipt = await run_in_threadpool(submit, installation, asked, principal.owner)
        except _Refused as refused:
            return page(request, "new_errors.html", 422, errors=refused.errors)
        except (UsageError, PredecessorNotFound) as error:
            return page(
                request, "new_errors.html", 422, errors=mistakes.of_refusal(error, words_for(request))
            )
    return Response(status_code=204, headers={"HX-Redirect": f"/jobs/{receipt.job.id}"})


def _asked(installation: Installation, principal: Principal, form: FormData, words: Words) -> SubmitRequest:
    """The request that the form makes. Raises _Refused."""
    given: dict[str, Any] = {name: value for name in ("piece", *LABELS) if (value := _text(form, name))}
    if priority := _text(form, "priority"):
        given["priority"] = _number(priority)
    given["instruction"] = str(form.get("instruction") or "").replace("\r\n", "\n")
    given["budget"] = {name: _number(value) for name in LIMITS if (value := _text(form, name))}
    if when := _text(form, "available_at"):
        given["available_at"] = _moment(when, installation, words)
    if key := _text(form, "idempotency_key"):
        given["idempotency_key"] = key
    try:
        body = JobBody.model_validate(given)
    except ValidationError as error:
        raise _Refused(**mistakes.of_validation(error, words)) from None
    refuse_scripted(principal, body.model)
    files = [part for part in form.getlist("files") if isinstance(part, UploadFile) and part.filename]
    if files and not principal.may(Scope.FILES_WRITE):
        raise _Refused(files=words("mistake.scope"))
    return body.as_request([InputFile(part.filename or "", part.file) for part in files])


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _number(text: str) -> float | str:
    """What is no number stays text, which is then refused at its field."""
    try:
        return float(text)
    except ValueError:
        return text


def _moment(text: str, installation: Installation, words: Words) -> datetime:
    """A time of the browser's: with its zone, else in the installation's."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _Refused(available_at=words("mistake.time")) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=installation.settings.zone())
