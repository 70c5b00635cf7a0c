"""What goes into the database and comes out of it, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run's claim on a job: the fence that each of its writes names."""

    run_id: str
    job_id: str


@dataclass(frozen=True, slots=True)
class Message:
    """One row of the transcript. `kind`: system, head, assistant, tool, gap or summary."""

    seq: int
    visit: int
    role: str
    kind: str
    content: str | None
    run_id: str
    created_at: float
    tool_calls: list[dict[str, Any]] | None = None  # id, name, arguments (text), raw_id
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    extra: dict[str, Any] | None = None
    tokens: int = 0


@dataclass(slots=True)
class NewMessage:
    """A message to append; its seq comes from the job's row."""

    role: str
    kind: str
    content: str | None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    extra: dict[str, Any] | None = None
    tokens: int = 0


@dataclass(slots=True)
class NewEvent:
    """A line of the job's history."""

    kind: str
    actor: str
    from_state: str | None = None
    to_state: str | None = None
    data: dict[str, Any] | None = None


@dataclass(slots=True)
class Move:
    """A change of state that a run makes, ending itself. `sources` are the states in which it is legal."""

    event: str
    sources: tuple[str, ...]
    target: str
    reason: str
    reason_data: dict[str, Any] | None = None
    terminal: bool = False
    outcome: str = "ended"  # kept on the run's row
    delay: float = 0.0  # seconds until the job is due again, for a move to a claimable state
    forgives_attempts: bool = True  # the run ended in order after committing a step
    unless: tuple[
        str, ...
    ] = ()  # of pause_requested, cancel_requested: refuse (RequestPending) if one is set
    steps: int = 0  # of this run in all, for its row


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A call that had a good result; `seq` is its message's."""

    seq: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class NewPlan:
    """A plan to record with the result of the call that made it."""

    plan_type: str
    plan_content: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One entry of a job's planning history. `seq` is that of its call's result in the transcript."""

    job_id: str
    seq: int
    plan_type: str
    plan_content: str
    created_at: float


@dataclass(frozen=True, slots=True)
class NewImage:
    """An image that the model is to see: what is sent, and where it came from."""

    sha: str  # of the bytes: the image's name within its job
    media_type: str
    data: bytes
    width: int
    height: int
    tokens: int
    path: str

    def reference(self) -> dict[str, Any]:
        """What stands of it in the transcript."""
        names = ("sha", "media_type", "width", "height", "tokens", "path")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as it is sent."""

    sha: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Paid:
    """What a model call took; `cost` None where its price is not known."""

    prompt_tokens: int
    completion_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary to record; its number comes from the job's row. `tokens_before`, `tokens_after`: of the context."""

    kind: str  # compaction | final
    content: str
    model: str | None
    first_seq: int
    last_seq: int
    message_count: int
    tokens: int
    tokens_before: int = 0
    tokens_after: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a job. `first_seq` to `last_seq` are the rows it is newly about; `message_seq` is its own row."""

    job_id: str
    number: int
    kind: str
    content: str
    model: str | None
    visit: int
    message_seq: int | None
    first_seq: int
    last_seq: int
    message_count: int
    tokens: int
    tokens_before: int
    tokens_after: int
    prompt_tokens: int
    completion_tokens: int
    cost: float
    created_at: float


class Commit(StrEnum):
    """What a run's checkpoint is about; each has its two crash points."""

    VISIT = "visit"
    GAP = "gap"
    REPLY = "reply"
    RESULT = "result"
    TRIM = "trim"
    SWAP = "swap"
    TRANSITION = "transition"
    END = "end"


@dataclass(slots=True)
class Checkpoint:
    """All that one step of a run changes, committed in one transaction or not at all."""

    what: Commit
    messages: list[NewMessage] = field(default_factory=list)
    parks: tuple[str, ...] = ()  # call ids that wait for a human or for subtasks
    events: list[NewEvent] = field(default_factory=list)
    remark: tuple[str, str] | None = None  # (question | result, text) of the agent itself; needs expect_inbox
    plan: NewPlan | None = None  # recorded under the seq of the first message
    images: tuple[NewImage, ...] = ()  # that a message refers to: their bytes are kept from now on
    summary: NewSummary | None = None  # the one message is its row, and stands for what it covers from now on
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    active_seconds: float = 0.0
    inbox_seen: int | None = None  # comments up to this number are now shown
    expect_inbox: int | None = None  # refuse (InboxChanged) if more comments than this have arrived
    expect_children: bool = False  # refuse (NoOpenChildren) if every child has ended
    values: dict[str, Any] = field(default_factory=dict)  # further columns of the job
    ends_live: bool = False  # something was told of the reply while it was written: see storage.live
    begins_visit: bool = False  # the first message is the visit's system message
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What the job's row says after a checkpoint."""

    messages: tuple[Message, ...]
    inbox_total: int
    pause_requested: bool
    cancel_requested: bool
    children_total: int
    limits: dict[str, float | None]  # max_steps, max_tokens, max_cost, max_seconds: a person may raise them
    woken_parent: str | None  # was waiting for this job alone: its wake-up is to be sent


@dataclass(frozen=True, slots=True)
class Comment:
    """A remark in the job's inbox: a person's (or the system's) comment, the agent's question or result."""

    job_id: str
    number: int
    kind: str  # comment, or the agent's own question or result
    author: str
    text: str
    created_at: float
    answers_call: str | None = None
    seen_seq: int | None = None  # of the message that it was shown with
    seen_step: int | None = None  # the step at which the agent had it; None: unread, 0: nobody noted


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """A committed line of the job's history."""

    job_id: str
    seq: int
    kind: str
    at: float
    actor: str
    from_state: str | None
    to_state: str | None
    run_id: str | None
    data: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class StateHooks:
    """Which hooks are to be called when a job comes into a state, and what they are told of its row."""

    names: Mapping[str, tuple[str, ...]]
    describe: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class HookCall:
    """A call of one hook that is still to be made."""

    id: str
    job_id: str
    name: str
    event: dict[str, Any]
