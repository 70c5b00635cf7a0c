"""Jobs: submit, list, look at, comment, control."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from jobs import comments, lifecycle, views
from jobs.api.document import reference
from jobs.api.gate import MAX_BODY_BYTES
from jobs.api.problems import Problem, invalid_response
from jobs.api.queries import BulkBody, BulkByFilter, JobQuery
from jobs.api.resources import BulkOutcome, BulkResult, Comment, Job, Page
from jobs.api.routing import (
    Installed,
    JobsReader,
    JobsWriter,
    ReadJob,
    TaggedRoute,
    answer,
    page,
    refuse_scripted,
)
from jobs.api.schemas import (
    JobBody,
    Key,
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

router = APIRouter(prefix="/api/jobs", tags=["jobs"], route_class=TaggedRoute)
_JOB_PART = "job"
OptionalKey = Key | SkipJsonSchema[None]

_SUBMIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": reference(JobBody)},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [_JOB_PART],
                    "additionalProperties": False,
                    "properties": {
                        _JOB_PART: reference(JobBody),
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "each becomes a file in input/, by its file name",
                        },
                    },
                },
                "encoding": {_JOB_PART: {"contentType": "application/json"}},
            },
        },
    }
}


@router.post(
    "",
    status_code=201,
    response_model=Job,
    openapi_extra=_SUBMIT_BODY,
    responses={200: {"model": Job, "description": "the key was known: this is its job"}},
)
async def submit_job(
    request: Request,
    installation: Installed,
    principal: JobsWriter,
    idempotency_key: Annotated[OptionalKey, Header()] = None,
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
        raise Problem(409, "KeysDiffer", "the header Idempotency-Key and the body's idempotency_key differ")
    refuse_scripted(principal, body.model)
    asked = body.as_request(files, key)
    receipt = await run_in_threadpool(submit, installation, asked, principal.owner)
    told = answer(job_dict(receipt.job), 201 if receipt.created else 200)
    told.headers["Location"] = f"/api/jobs/{receipt.job.id}"
    return told


@router.get("", response_model=Page[Job])
def list_jobs(
    request: Request,
    installation: Installed,
    principal: JobsReader,
    wanted: Annotated[JobQuery, Query()],
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
    return page(request, found, wanted.limit, job_dict, **cursor)


@router.post("/bulk", response_model=BulkResult)
def act_on_jobs(body: BulkBody, installation: Installed, principal: JobsWriter) -> BulkResult:
    """Pause, resume, cancel or retry many jobs, each in its own transaction and with its own result.

    Either `ids` or a `filter`; of a filter the oldest that fit, at most `limit`: `more` tells whether others fitted too.
    """
    more = False
    if isinstance(body, BulkByFilter):
        fitting = views.find_jobs(
            installation, body.filter.as_filter(principal), body.limit + 1, oldest_first=True
        )
        more = len(fitting) > body.limit
        job_ids = [job.id for job in fitting[: body.limit]]
    else:
        job_ids = list(dict.fromkeys(body.ids))
    outcomes = act_on_all(installation, body.action, job_ids, principal.sees, principal.owner)
    return BulkResult(results=[BulkOutcome.of(outcome) for outcome in outcomes], more=more)


@router.get("/{job_id}", response_model=Job)
def get_job(job: ReadJob) -> Response:
    """One job: its state and why, what comes next, question, result or error, and its links."""
    return answer(job_dict(job))


@router.post("/{job_id}/comments", status_code=201, response_model=Comment)
def add_comment(job_id: str, body: TextBody, installation: Installed, principal: JobsWriter) -> Response:
    """Tell the agent something. It reads it once, at its next step, and always before it may complete."""
    made = comments.add_comment(installation, job_id, principal.sees, body.text, principal.owner)
    return answer(comment_dict(made), 201)


@router.post("/{job_id}/reply", status_code=201, response_model=Comment)
def reply_to_job(job_id: str, body: TextBody, installation: Installed, principal: JobsWriter) -> Response:
    """Answer the job's question: with any text, or the number of a choice. 409 when it asks none."""
    made = comments.reply(installation, job_id, principal.sees, body.text, principal.owner)
    return answer(comment_dict(made), 201)


@router.post("/{job_id}/pause", response_model=Job)
def pause_job(job_id: str, installation: Installed, principal: JobsWriter) -> Response:
    """Pause: at once where the job waits, else after the present step."""
    return answer(job_dict(lifecycle.pause(installation, job_id, principal.sees, principal.owner)))


@router.post("/{job_id}/resume", response_model=Job)
def resume_job(
    job_id: str, installation: Installed, principal: JobsWriter, body: ResumeBody | None = None
) -> Response:
    """Go on after a pause; with a raised budget where one is given."""
    budget = (body or ResumeBody()).budget.as_budget()
    return answer(job_dict(lifecycle.resume(installation, job_id, principal.sees, principal.owner, budget)))


@router.post("/{job_id}/cancel", response_model=Job)
def cancel_job(job_id: str, installation: Installed, principal: JobsWriter) -> Response:
    """End the job, and its subtasks."""
    return answer(job_dict(lifecycle.cancel(installation, job_id, principal.sees, principal.owner)))


@router.post("/{job_id}/retry", response_model=Job)
def retry_job(
    job_id: str, installation: Installed, principal: JobsWriter, body: RetryBody | None = None
) -> Response:
    """Continue a failed, aborted or cancelled job from its last checkpoint."""
    model = (body or RetryBody()).model
    refuse_scripted(principal, model)
    return answer(job_dict(lifecycle.retry(installation, job_id, principal.sees, principal.owner, model)))
