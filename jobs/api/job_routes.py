"""Jobs: submit, list, look at, comment, control."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from jobs import comments, lifecycle, views
from jobs.api.gate import MAX_BODY_BYTES
from jobs.api.problems import Problem, invalid_response
from jobs.api.queries import BulkBody, BulkOutcome, BulkResult, JobQuery
from jobs.api.routing import (
    NOT_MODIFIED,
    IfNoneMatch,
    Installed,
    JobsReader,
    JobsWriter,
    ReadJob,
    page,
    refuse_scripted,
    tagged,
)
from jobs.api.schemas import (
    JobBody,
    JobResource,
    Page,
    ResumeBody,
    RetryBody,
    TextBody,
    comment_dict,
    job_dict,
)
from jobs.api.tokens import Principal, Scope
from jobs.bulk import act_on_all
from jobs.installation import Installation
from jobs.submit import submit
from jobs.workspace import InputFile

router = APIRouter(prefix="/api/jobs", tags=["jobs"])
_JOB_PART = "job"

_SUBMIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": JobBody.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [_JOB_PART],
                    "properties": {
                        _JOB_PART: {"type": "string", "description": "the JSON document, as text"},
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    },
                }
            },
        },
    }
}


@router.post(
    "",
    status_code=201,
    response_model=JobResource,
    openapi_extra=_SUBMIT_BODY,
    responses={200: {"model": JobResource, "description": "the key was known: this is its job"}},
)
async def submit_job(
    request: Request,
    installation: Installed,
    principal: JobsWriter,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response:
    """Submit a job: as JSON, or as a form whose part `job` is that JSON and whose other parts are input files.

    When this answers, the job and its files are stored and will run.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return await _accept(installation, principal, await request.body(), [], idempotency_key)
    if kind != "multipart/form-data":
        raise Problem(415, "UnsupportedMediaType", "send application/json or multipart/form-data")
    most = installation.settings.max_workspace_files
    async with request.form(max_files=most, max_fields=1, max_part_size=MAX_BODY_BYTES) as form:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if files and not principal.may(Scope.FILES_WRITE):
            raise Problem(403, "ScopeMissing", f"input files need a token with the scope {Scope.FILES_WRITE}")
        document = form.get(_JOB_PART)
        if not isinstance(document, str):
            raise Problem(
                422, "InvalidRequest", f"the form needs a part named {_JOB_PART} with the job as JSON"
            )
        inputs = [InputFile(part.filename or "", part.file) for part in files]
        return await _accept(installation, principal, document, inputs, idempotency_key)


async def _accept(
    installation: Installation,
    principal: Principal,
    document: str | bytes,
    files: list[InputFile],
    key: str | None,
) -> Response:
    try:
        body = JobBody.model_validate_json(document)
    except ValidationError as error:
        return invalid_response(
            [entry | {"loc": ("body", *entry["loc"])} for entry in error.errors(include_input=False)]
        )
    if key is not None and body.idempotency_key not in (None, key):
        raise Problem(
            422, "InvalidRequest", "the header Idempotency-Key and the body's idempotency_key differ"
        )
    refuse_scripted(principal, body.model)
    asked = body.as_request(files, key)
    receipt = await run_in_threadpool(submit, installation, asked, principal.owner)
    answer = _job_response(receipt.job)
    answer.status_code = 201 if receipt.created else 200
    answer.headers["Location"] = f"/api/jobs/{receipt.job.id}"
    return answer


@router.get("", response_model=Page, responses=NOT_MODIFIED)
def list_jobs(
    request: Request,
    installation: Installed,
    principal: JobsReader,
    wanted: Annotated[JobQuery, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The jobs, newest first unless `order` says otherwise; all filters that are given must fit."""
    oldest_first = wanted.order == "oldest"
    found = views.find_jobs(
        installation,
        wanted.as_filter(principal),
        wanted.limit + 1,
        before=wanted.before,
        after=wanted.after,
        oldest_first=oldest_first,
    )
    cursor = {"after" if oldest_first else "before": lambda job: job.id}
    return tagged(page(request, found, wanted.limit, job_dict, **cursor), if_none_match)


@router.post("/bulk", response_model=BulkResult)
def act_on_many(body: BulkBody, installation: Installed, principal: JobsWriter) -> BulkResult:
    """Pause, resume, cancel or retry many jobs, each in its own transaction and with its own result.

    Either `ids` or a `filter`; of a filter the oldest that fit, at most `limit`: `more` tells whether others fitted too.
    """
    more = False
    job_ids = body.ids
    if body.filter is not None:
        fitting = views.find_jobs(
            installation, body.filter.as_filter(principal), body.limit + 1, oldest_first=True
        )
        more = len(fitting) > body.limit
        job_ids = [job.id for job in fitting[: body.limit]]
    outcomes = act_on_all(
        installation, body.action, list(dict.fromkeys(job_ids or [])), principal.sees, principal.owner
    )
    return BulkResult(results=[BulkOutcome.of(outcome) for outcome in outcomes], more=more)


@router.get(
    "/{job_id}",
    response_model=JobResource,
    responses=NOT_MODIFIED,
)
def get_job(job: ReadJob, if_none_match: IfNoneMatch = None) -> Response:
    """One job: its state and why, what comes next, question, result or error, and its links."""
    return tagged(job_dict(job), if_none_match)


@router.post("/{job_id}/comments", status_code=201)
def add_comment(
    job_id: str, body: TextBody, installation: Installed, principal: JobsWriter
) -> dict[str, Any]:
    """Tell the agent something. It reads it once, at its next step, and always before it may complete."""
    made = comments.add_comment(installation, job_id, principal.sees, body.text, principal.owner)
    return comment_dict(made)


@router.post("/{job_id}/reply", status_code=201)
def reply(job_id: str, body: TextBody, installation: Installed, principal: JobsWriter) -> dict[str, Any]:
    """Answer the job's question: with any text, or the number of a choice. 409 when it asks none."""
    made = comments.reply(installation, job_id, principal.sees, body.text, principal.owner)
    return comment_dict(made)


@router.post("/{job_id}/pause", response_model=JobResource)
def pause(job_id: str, installation: Installed, principal: JobsWriter) -> Response:
    """Pause: at once where the job waits, else after the present step."""
    return _job_response(lifecycle.pause(installation, job_id, principal.sees, principal.owner))


@router.post("/{job_id}/resume", response_model=JobResource)
def resume(
    job_id: str, installation: Installed, principal: JobsWriter, body: ResumeBody | None = None
) -> Response:
    """Go on after a pause; with a raised budget where one is given."""
    budget = (body or ResumeBody()).budget.as_budget()
    return _job_response(lifecycle.resume(installation, job_id, principal.sees, principal.owner, budget))


@router.post("/{job_id}/cancel", response_model=JobResource)
def cancel(job_id: str, installation: Installed, principal: JobsWriter) -> Response:
    """End the job, and its subtasks."""
    return _job_response(lifecycle.cancel(installation, job_id, principal.sees, principal.owner))


@router.post("/{job_id}/retry", response_model=JobResource)
def retry(
    job_id: str, installation: Installed, principal: JobsWriter, body: RetryBody | None = None
) -> Response:
    """Continue a failed, aborted or cancelled job from its last checkpoint."""
    model = (body or RetryBody()).model
    refuse_scripted(principal, model)
    return _job_response(lifecycle.retry(installation, job_id, principal.sees, principal.owner, model))


def _job_response(job: views.JobView) -> Response:
    return tagged(job_dict(job), None)
