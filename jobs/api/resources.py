"""What is told, for the OpenAPI document. Answers are built from rows and are not checked again: a test compares them.

More members may be added to any of these; clients ignore those that they do not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from jobs.api.examples import (
    AUDIT_RECORD,
    BULK_RESULT,
    CALL,
    COMMENT,
    CONTEXT,
    COOLDOWN,
    EVENT,
    EXCHANGE,
    FILE,
    JOB,
    MESSAGE,
    PIECE,
    QUEUE,
    SUMMARY,
    TOKEN,
    WORKER,
    Example,
)
from jobs.bulk import Outcome
from jobs.states import State

Item = TypeVar("Item")


def _shown(*examples: Example) -> ConfigDict:
    return ConfigDict(extra="allow", json_schema_extra={"examples": list(examples)})


class Page(BaseModel, Generic[Item]):
    """A page of a list; `next` is the URL of the following one, null on the last."""

    model_config = ConfigDict(extra="allow")

    items: list[Item]
    next: str | None

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`JobPage` instead of `Page[Job]`."""
        return f"{params[0].__name__}Page"


class Question(BaseModel):
    """What the agent asks. Nobody answering by `until`, it goes on with `default_answer`."""

    model_config = ConfigDict(extra="allow")

    question: str
    choices: list[str] = []
    until: datetime | None = None
    default_answer: str | None = None


class Limits(BaseModel):
    """A job's limits; null: none."""

    max_steps: int | None
    max_tokens: int | None
    max_cost: float | None
    max_seconds: float | None


class Job(BaseModel):
    """A job. `links` names what can be asked about it and done to it now."""

    model_config = _shown(JOB)

    id: str
    title: str
    state: State
    reason: str | None = Field(description="why it is in this state; stable")
    reason_text: str | None = Field(description="the same for people")
    next_action: str | None = Field(description="what happens next, or what its owner can do")
    piece: str
    movement: str
    steps: int
    tokens: int
    cost: float
    cost_known: bool = Field(description="false: a model without a price was asked, the true cost is higher")
    attempt: int
    priority: int
    worker: str | None
    model: str | None
    result: str | None
    error: str | None
    pending_question: Question | None
    budget: Limits
    task_type: str
    task_identifier: str | None
    repository: str | None
    user: str | None
    metadata: dict[str, Any] | None
    owner: str
    parent_id: str | None
    inherits_from: str | None
    summary_state: Literal["none", "pending", "done", "failed"]
    children_open: int
    children_total: int
    unread_comments: int
    total_messages: int
    total_summaries: int
    total_tool_calls: int
    context_tokens: int = Field(description="what the model sees now, as far as it is known")
    final_token_count: int | None = Field(description="of the context at its last pause or end")
    final_message_count: int | None = Field(description="the same")
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    links: dict[str, str]


class Comment(BaseModel):
    """A remark of a person or of the system, or the agent's question or result."""

    model_config = _shown(COMMENT)

    job_id: str
    number: int
    kind: Literal["comment", "question", "result"]
    author: str
    text: str
    created_at: datetime
    answers_call: str | None
    seen_seq: int | None = Field(description="of the message that the agent was shown it with; null: not yet")
    seen_step: int | None = Field(
        description="the first step that knew it; null: it is unread, 0: shown before this was noted"
    )


class Message(BaseModel):
    """A row of the transcript."""

    model_config = _shown(MESSAGE)

    seq: int
    visit: int
    role: str
    kind: str = Field(description="system, head, assistant, tool, gap or summary")
    content: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str | None
    tool_name: str | None
    is_error: bool
    tokens: int
    created_at: datetime
    summarised_by: int | None = Field(
        default=None,
        description="the number of the summary that stands for it now; null: the model still sees it",
    )


class Event(BaseModel):
    """A change of the job."""

    model_config = _shown(EVENT)

    job_id: str
    seq: int
    kind: str
    at: datetime
    actor: str
    from_state: str | None
    to_state: str | None
    run_id: str | None
    data: dict[str, Any] | None


class ToolCall(BaseModel):
    """A call that the model asked for; its result is the message `result_seq`."""

    model_config = _shown(CALL)

    message_seq: int
    position: int
    call_id: str
    name: str
    arguments: str = Field(description="JSON, as the model wrote it")
    state: Literal["open", "parked", "done"]
    is_error: bool | None
    result_seq: int | None
    started_at: datetime | None
    ended_at: datetime | None


class Exchange(BaseModel):
    """A call of the model, without its bodies."""

    model_config = _shown(EXCHANGE)

    seq: int
    at: datetime


class WholeExchange(Exchange):
    """A call of the model: the whole request, and the response as it came."""

    request: dict[str, Any]
    incomplete: bool = Field(description="an earlier call, on which the request builds, is gone")


class Summary(BaseModel):
    """A summary of the job's context (`compaction`) or of the whole job (`final`)."""

    model_config = _shown(SUMMARY)

    number: int
    kind: Literal["compaction", "final"]
    content: str
    first_seq: int
    last_seq: int
    created_at: datetime


class Todo(BaseModel):
    """An item of the agent's list."""

    model_config = _shown({"id": "1", "content": "Read the report", "status": "completed"})

    id: str
    content: str
    status: Literal["pending", "in_progress", "completed"]


class ChecklistItem(BaseModel):
    """A line of a checklist."""

    number: int
    text: str
    done: bool
    note: str | None


class Checklist(BaseModel):
    """A checklist of the agent's."""

    model_config = _shown(
        {"name": "release", "items": [{"number": 1, "text": "tests pass", "done": True, "note": None}]}
    )

    name: str
    items: list[ChecklistItem]


class Plan(BaseModel):
    """A plan that the agent recorded."""

    model_config = _shown(
        {
            "seq": 7,
            "at": "2026-11-30T08:00:00.000Z",
            "plan_type": "outline",
            "plan_content": "1. read 2. write",
        }
    )

    seq: int
    at: datetime
    plan_type: str
    plan_content: str


class Lesson(BaseModel):
    """What one movement handed to the next."""

    model_config = _shown(
        {
            "at": "2026-11-30T08:00:00.000Z",
            "movement": "plan",
            "next": "write",
            "lessons": "The data is in table 2.",
        }
    )

    at: datetime
    movement: str
    next: str
    lessons: str


class Context(BaseModel):
    """What the model would see at its next call, with estimated tokens; no messages: its movement has not begun."""

    model_config = _shown(CONTEXT)

    job: str
    movement: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tokens: int
    tools_tokens: int
    unread_comments: int


class File(BaseModel):
    """Something in a workspace; only files can be fetched."""

    model_config = _shown(FILE)

    path: str
    kind: Literal["file", "link", "other"]
    size: int
    modified: datetime
    url: str


class FileList(BaseModel):
    """What is in input/ and output/; `complete` false: there are more than were counted."""

    items: list[File]
    total: int
    complete: bool


class StoredFile(BaseModel):
    """A file that was stored."""

    model_config = _shown({"path": "input/report.pdf", "size": 48213})

    path: str
    size: int


class Piece(BaseModel):
    """A workflow that jobs can run."""

    model_config = _shown(PIECE)

    name: str
    origin: str
    description: str | None
    valid: bool


class WorkerRun(BaseModel):
    """A job in a worker's hands."""

    job_id: str
    kind: str = Field(description="agent, context (a compaction), or summary (the final one)")
    claimed_at: datetime
    lease_expires_at: datetime = Field(description="renewed while the worker lives")


class Queue(BaseModel):
    """Work of one kind that no worker has."""

    model_config = _shown(QUEUE)

    kind: str = Field(description="agent, context (compactions), or summary (final summaries)")
    due: int
    oldest_seconds: float = Field(description="how long the oldest has been due")
    later: int = Field(description="not due yet")


class Cooldown(BaseModel):
    """An endpoint that no worker asks now."""

    model_config = _shown(COOLDOWN)

    endpoint: str
    until: datetime
    reason: str


class Worker(BaseModel):
    """A worker process that runs now."""

    model_config = _shown(WORKER)

    name: str
    state: Literal["running", "draining"]
    queues: list[str]
    concurrency: int
    version: str
    started_at: datetime
    seen_at: datetime
    busy: int = Field(description="runs that it has, whosever jobs they are")
    runs: list[WorkerRun] = Field(description="those of jobs that the asker may see")


class Token(BaseModel):
    """A token without its secret."""

    model_config = _shown(TOKEN)

    id: str
    owner: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewToken(Token):
    """A token, this once with its secret."""

    model_config = _shown(TOKEN | {"token": "sos_…"})

    token: str


class AuditRecord(BaseModel):
    """Who did what, when and through which door."""

    model_config = _shown(AUDIT_RECORD)

    id: int
    at: datetime
    kind: str
    actor: str
    via: str
    credential: str | None = Field(description="the id of a token or session")
    address: str | None
    job_id: str | None
    data: dict[str, Any] | None


class AuditedCall(BaseModel):
    """A tool call by name, hash and outcome."""

    model_config = _shown(
        {name: value for name, value in CALL.items() if name in {"call_id", "name", "state", "is_error"}}
        | {"arguments_sha256": "9f86d081884c7d65…", "started_at": None, "ended_at": None}
    )

    call_id: str
    name: str
    arguments_sha256: str
    state: str
    is_error: bool | None
    started_at: datetime | None
    ended_at: datetime | None


class LoggedIn(BaseModel):
    """A session that has begun; its cookie is in `Set-Cookie`."""

    model_config = _shown(
        {
            "owner": "local",
            "scopes": ["jobs:read"],
            "expires_at": "2026-12-14T08:00:00.000Z",
            "csrf_token": "…",
        }
    )

    owner: str
    scopes: list[str]
    expires_at: datetime
    csrf_token: str = Field(description="to be sent as X-CSRF-Token with what changes something")


class Health(BaseModel):
    """The process answers."""

    model_config = _shown({"status": "ok"})

    status: str


class Readiness(BaseModel):
    """Whether jobs can be accepted."""

    model_config = _shown({"status": "ok", "database": "ok", "broker": "ok"})

    status: Literal["ok", "unavailable"]
    database: str
    broker: Literal["ok", "unreachable"]


class BulkOutcome(BaseModel):
    """What became of one job: `state` where it was done, else `code` and `detail` as in a problem."""

    id: str
    ok: bool
    state: str | None = None
    code: str | None = None
    detail: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> BulkOutcome:
        done = outcome.code is None
        return cls(id=outcome.job_id, ok=done, state=outcome.state, code=outcome.code, detail=outcome.detail)


class BulkResult(BaseModel):
    """One result for each job, in order. `more`: others fitted the filter too."""

    model_config = _shown(BULK_RESULT)

    results: list[BulkOutcome]
    more: bool


class Place(BaseModel):
    """A wrong place of a request."""

    loc: list[str]
    msg: str


class ProblemDocument(BaseModel):
    """An error (RFC 9457). `code` is stable; `detail` is one line for people, `hint` what to do where we know."""

    model_config = _shown(
        {
            "type": "urn:sostenuto:problem:job-not-found",
            "title": "Not Found",
            "status": 404,
            "code": "JobNotFound",
            "detail": "there is no job 42",
        }
    )

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = ""
    errors: list[Place] = []
