"""What the server answers, as frozen dataclasses. `raw` is the whole answer, with members newer than this client.

Times are datetimes in UTC. A member that a record needs and the answer lacks is an UnexpectedAnswer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

from sostenuto.errors import UnexpectedAnswer

Record = TypeVar("Record")
Raw = Mapping[str, Any]
TERMINAL_STATES = frozenset({"succeeded", "failed", "aborted", "cancelled"})
WAITING_FOR_SOMEONE = frozenset({"waiting_human", "paused"})


def record(kind: type[Record], data: Any) -> Record:
    """One record from a JSON object. Raises UnexpectedAnswer."""
    if not isinstance(data, dict):
        raise UnexpectedAnswer(f"expected an object that is a {kind.__name__}")
    values: dict[str, Any] = {}
    for member in fields(kind):  # type: ignore[arg-type]  # every record is a dataclass
        if member.name == "raw":
            values["raw"] = data
        elif member.name in data and (data[member.name] is not None or member.default is MISSING):
            values[member.name] = _converted(member.name, str(member.type), data[member.name])
        elif member.default is MISSING:
            raise UnexpectedAnswer(f"a {kind.__name__} without {member.name!r}")
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a job; None: no limit. A job that reaches one is paused."""

    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def as_json(self) -> dict[str, float]:
        """The limits that are set."""
        given = {member.name: getattr(self, member.name) for member in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the agent asks. Nobody answering by `until`, it goes on with `default_answer`."""

    question: str
    choices: tuple[str, ...] = ()
    until: datetime | None = None
    default_answer: str | None = None
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stood when the server answered. `reason_text` and `next_action` are for people."""

    id: str
    title: str
    state: str
    reason: str | None
    reason_text: str | None
    next_action: str | None
    piece: str
    movement: str
    steps: int
    tokens: int
    cost: float
    cost_known: bool = True
    attempt: int = 0
    priority: int = 0
    worker: str | None = None
    model: str | None = None
    result: str | None
    error: str | None
    pending_question: Question | None
    budget: Budget = Budget()
    task_type: str = "local"
    task_identifier: str | None = None
    repository: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] | None = None
    owner: str
    parent_id: str | None = None
    children_open: int = 0
    children_total: int = 0
    unread_comments: int = 0
    total_messages: int = 0
    total_summaries: int = 0
    total_tool_calls: int = 0
    context_tokens: int = 0  # what the model sees now, as far as it is known
    final_token_count: int | None = None  # of the context at the job's last pause or end
    final_message_count: int | None = None
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    raw: Raw = field(repr=False, compare=False, default_factory=dict)

    @property
    def ended(self) -> bool:
        """It succeeded, failed, was aborted or cancelled."""
        return self.state in TERMINAL_STATES

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"

    @property
    def needs_someone(self) -> bool:
        """It goes on only when someone answers, resumes or raises a limit."""
        return self.state in WAITING_FOR_SOMEONE


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A change of the job: what happened, by whom, from which state to which."""

    seq: int
    kind: str
    at: datetime
    actor: str
    from_state: str | None
    to_state: str | None
    data: Mapping[str, Any] | None
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A row of the transcript. `kind`: system, head, assistant, tool, gap or summary."""

    seq: int
    role: str
    kind: str
    content: str | None
    created_at: datetime
    visit: int = 0
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    tokens: int = 0
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A remark of a person, or the agent's question or result. `kind` tells which."""

    number: int
    author: str
    kind: str
    text: str
    created_at: datetime
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asked for: open, parked or done; its result is the message `result_seq`."""

    message_seq: int
    position: int
    call_id: str
    name: str
    arguments: str
    state: str
    is_error: bool | None
    result_seq: int | None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """An item of the agent's list: pending, in_progress or completed."""

    id: str
    content: str
    status: str
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Something in a workspace. `kind`: file, link or other; only files can be fetched."""

    path: str
    kind: str
    size: int
    modified: datetime
    url: str
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A workflow that jobs can run."""

    name: str
    origin: str
    description: str | None
    valid: bool
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker process that was seen lately. `state`: running, or draining where it takes no more jobs."""

    name: str
    state: str = "running"  # an older server does not tell
    queues: Any
    concurrency: int
    version: str
    sandbox: Any
    started_at: datetime
    seen_at: datetime
    raw: Raw = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a stream. `kind` is history, message, end, or one newer than this client; `id` is where to go on."""

    id: str
    kind: str
    data: Mapping[str, Any]

    @property
    def message(self) -> Message | None:
        """The row of the transcript that it tells, if it does."""
        return record(Message, self.data) if self.kind == "message" else None

    @property
    def change(self) -> HistoryEntry | None:
        """The line of the history that it tells, if it does."""
        return record(HistoryEntry, self.data) if self.kind == "history" else None


def _converted(name: str, kind: str, value: Any) -> Any:
    """A member's value as its annotation says, where JSON has no such thing."""
    convert = _CONVERTERS.get(kind.removesuffix(" | None"))
    if convert is None or value is None:
        return value
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise UnexpectedAnswer(f"{name!r} has a value that cannot be read") from None


def _budget(value: dict[str, Any]) -> Budget:
    known = {member.name for member in fields(Budget)}
    return Budget(**{name: limit for name, limit in value.items() if name in known})


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "tuple[str, ...]": tuple,
    "tuple[Mapping[str, Any], ...]": tuple,
    "Budget": _budget,
    "Question": lambda value: record(Question, value),
}
