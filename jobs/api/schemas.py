"""What clients send, checked; and how rows are told to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from jobs.api.tokens import LONGEST_LIFETIME, MAX_OWNER_CHARS, Scope
from jobs.comments import MAX_COMMENT_CHARS
from jobs.lifecycle import MOST_BUDGET, Budget
from jobs.states import TERMINAL, State
from jobs.submit import LATEST, MAX_KEY_CHARS, SubmitRequest
from jobs.views import JobView, iso
from jobs.workspace import InputFile
from storage.observing import CallRow
from storage.records import Comment, HistoryEvent, Message

# Told in the document, and refused by `jobs` itself, whose errors say what to do.
NOT_BLANK: dict[str, Any] = {"pattern": r"\S"}
ScopeName = Annotated[str, Field(json_schema_extra={"enum": [str(scope) for scope in Scope]})]
Key = Annotated[
    str, Field(max_length=MAX_KEY_CHARS, pattern=r"^[^\x00-\x1f\x7f]+$")
]  # it can also be a header
Label = Annotated[str, Field(max_length=500)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


AsWhole = BeforeValidator(_whole)  # 2.0 too: JSON knows no difference
WholeLimit = Annotated[int, Field(gt=0, le=MOST_BUDGET, strict=True), AsWhole]
Limit = Annotated[float, Field(gt=0, le=MOST_BUDGET, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BudgetBody(_Body):
    """Limits; a job that reaches one is paused."""

    max_steps: WholeLimit | None = None
    max_tokens: WholeLimit | None = None
    max_cost: Limit | None = None
    max_seconds: Limit | None = None

    def as_budget(self) -> Budget:
        return Budget(**self.model_dump())


class JobBody(_Body):
    """A job to submit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"instruction": "Summarise input/report.pdf", "idempotency_key": "report-2026-11"},
                {"instruction": "Fix the build", "repository": "demo", "budget": {"max_steps": 50}},
            ]
        }
    )

    instruction: str = Field(json_schema_extra=NOT_BLANK, description="what is to be done")
    piece: str | None = Field(default=None, description="default: chosen by keyword")
    task_type: Label = "local"
    task_identifier: Label | None = None
    repository: Label | None = None
    user: Label | None = None
    inherits_from: Annotated[str, Field(max_length=100)] | None = Field(
        default=None,
        description="an ended job of yours to continue from; default: the newest with the same key",
    )
    priority: Annotated[int, Field(ge=-1000, le=1000, strict=True), AsWhole] = Field(
        default=0, description="higher runs first"
    )
    available_at: AwareDatetime | None = Field(
        default=None, description="not before this time; one that is past means now"
    )
    idempotency_key: Key | None = Field(
        default=None, description="the same key gives the same job; also as the header Idempotency-Key"
    )
    budget: BudgetBody = BudgetBody()
    model: Label | None = None
    metadata: dict[str, Any] | None = None

    def due(self) -> float | None:
        """In epoch seconds, within what can be stored."""
        return None if self.available_at is None else min(max(self.available_at.timestamp(), 0.0), LATEST)

    def as_request(self, files: Sequence[InputFile] = (), key: str | None = None) -> SubmitRequest:
        """What is to be submitted; `key` is an idempotency key that came beside the body."""
        given = self.model_dump(exclude={"budget", "available_at", "idempotency_key"})
        return SubmitRequest(
            **given,
            files=files,
            budget=self.budget.as_budget(),
            available_at=self.due(),
            idempotency_key=key or self.idempotency_key,
        )


class TextBody(_Body):
    """A comment or an answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Use the second table."}]})

    text: str = Field(json_schema_extra=NOT_BLANK | {"maxLength": MAX_COMMENT_CHARS})


class ResumeBody(_Body):
    """Limits to raise, if any."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"budget": {"max_steps": 100}}]})

    budget: BudgetBody = BudgetBody()


class RetryBody(_Body):
    """Another model, if wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "another-model"}, {}]})

    model: Label | None = None


class TokenBody(_Body):
    """A token to make."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"owner": "ann", "scopes": ["jobs:read"], "expires_in": 86400}]}
    )

    owner: Annotated[str, Field(json_schema_extra=NOT_BLANK, max_length=MAX_OWNER_CHARS)] | None = Field(
        default=None, description="default: the caller"
    )
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=20)] | None = Field(
        default=None, description="default: all that concern jobs and files"
    )
    expires_in: Annotated[float, Field(gt=0, le=LONGEST_LIFETIME, strict=True)] | None = Field(
        default=90 * 86_400.0, description="seconds; null: until it is revoked"
    )


def job_dict(view: JobView) -> dict[str, Any]:
    """A job with its links. Those that would only be refused in its state are left out."""
    here = f"/api/jobs/{view.id}"
    links = {"self": here}
    links |= {
        name.partition(".")[0].replace("-", "_"): f"{here}/{name}"
        for name in (
            "events", "history", "comments", "messages", "tool-calls", "todos", "checklists", "plans", "lessons",
            "summaries", "exchanges", "context", "children", "files", "workspace.zip",
        )
    }  # fmt: skip
    state = State(view.state)
    if state not in TERMINAL:
        links["cancel"] = f"{here}/cancel"
        control = "resume" if state is State.PAUSED else "pause"
        links[control] = f"{here}/{control}"
    elif state is not State.SUCCEEDED:
        links["retry"] = f"{here}/retry"
    if view.pending_question is not None:
        links["reply"] = f"{here}/reply"
    if view.parent_id is not None:
        links["parent"] = f"/api/jobs/{view.parent_id}"
    if view.inherits_from is not None:
        links["predecessor"] = f"/api/jobs/{view.inherits_from}"
    return view.as_dict() | {"links": links}


def message_dict(message: Message) -> dict[str, Any]:
    """A row of the transcript."""
    return asdict(message) | {"created_at": iso(message.created_at)}


def exchange_dict(exchange: dict[str, Any]) -> dict[str, Any]:
    """A call of the model."""
    return exchange | {"at": iso(exchange["at"])}


def event_dict(event: HistoryEvent) -> dict[str, Any]:
    """A line of the history."""
    return asdict(event) | {"at": iso(event.at)}


def comment_dict(comment: Comment) -> dict[str, Any]:
    """A remark of a person or of the agent."""
    return asdict(comment) | {"created_at": iso(comment.created_at)}


def call_dict(call: CallRow) -> dict[str, Any]:
    """A tool call."""
    times = {name: getattr(call, name) for name in ("started_at", "ended_at")}
    return asdict(call) | {name: None if at is None else iso(at) for name, at in times.items()}
