"""What a model call takes and gives: the interface between the agent loop and any model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from worker.model.errors import ModelError, ModelErrorKind
from worker.model.rules import Rules

if TYPE_CHECKING:
    from worker.cancel import CancelToken
    from worker.drafts import Draft

__all__ = ["Model", "ModelError", "ModelErrorKind", "ModelReply", "ModelRequest", "ToolCall", "Usage"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for. `arguments` is the text it wrote: it may be no JSON at all."""

    id: str  # for the wire: ours, unique, at most 40 characters of [A-Za-z0-9_-]
    name: str
    arguments: str
    raw_id: str | None = None  # what the endpoint called it: may be empty, doubled, too long
    extra: dict[str, Any] | None = None  # what the endpoint wants back with the call (`extra_content`)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint counted them; None is unknown (also where it said zero)."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A whole reply: one that was cut off in transit never becomes a ModelReply.

    `finish_reason` is "tool_calls" where there are calls, else "stop"; or, whatever else is there, "length"
    (cut at the output limit: its calls must not be run) or "content_filter" (refused; `refusal` says more
    where the model did). `reasoning` holds the endpoint's reasoning fields under their own names, to be sent
    back only where it wants them.
    """

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage
    model: str
    refusal: str | None = None
    reasoning: dict[str, Any] | None = None
    adapted: tuple[str, ...] = ()  # refusals that the call met and worked around
    form: str = ""  # in which the messages were sent: see `Rules.form`
    epochs: int = 0  # how often that was another one than before


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One Chat Completions request. `label` is "job/visit/epoch"; messages are sent as they stand.

    `form` is the one in which the epoch's earlier messages went out; None where none did. `rules` decide the optional
    members; `tape`, where there is one, hears the bytes of both directions; `draft` is where the reply can be read while
    it is written.
    """

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_output_tokens: int | None
    label: str
    step: int | None = None  # of the job, where the call is one of its steps
    form: str | None = None
    expected_tokens: int = 0  # about what the call takes, where an endpoint is limited by tokens
    rules: Rules = field(default_factory=Rules)
    tape: Tape | None = field(default=None, compare=False)
    draft: Draft | None = field(default=None, compare=False)


class Tape(Protocol):
    """Listens to one call. Called on the model loop's thread; must neither block nor raise."""

    def sent(self, body: bytes) -> None:
        """The request's body."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The response's head."""

    def received(self, chunk: bytes) -> None:
        """A piece of the response's body."""


class Model(Protocol):
    """Anything that answers. Implementations are used from many threads at once."""

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """Block until the whole reply is there.

        Raises ModelError, or Cancelled within milliseconds of `cancel`. Never retries: the caller owns
        retries.
        """
