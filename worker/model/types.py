"""What a model call takes and gives: the interface between the agent loop and any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from worker.model.errors import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from worker.cancel import CancelToken

__all__ = ["Model", "ModelError", "ModelErrorKind", "ModelReply", "ModelRequest", "ToolCall", "Usage"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for. `arguments` is the text it wrote: it may be no JSON at all."""

    id: str  # for the wire: ours, unique, at most 40 characters of [A-Za-z0-9_-]
    name: str
    arguments: str
    raw_id: str | None = None  # what the endpoint called it: may be empty, doubled, too long


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


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One Chat Completions request. `label` is "job/visit/epoch"; messages are sent as they stand."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_output_tokens: int | None
    label: str


class Model(Protocol):
    """Anything that answers. Implementations are used from many threads at once."""

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """Block until the whole reply is there.

        Raises ModelError, or Cancelled within milliseconds of `cancel`. Never retries: the caller owns
        retries.
        """
