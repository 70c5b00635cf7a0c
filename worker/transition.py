"""The `transition` tool: the one way for a model to end its movement, and how its call is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jobs.arguments import decode_arguments
from jobs.pieces import ASK, Movement

NAME = "transition"
LESSONS_CHARS = 2000
FINDINGS_CHARS = 8000
MOST_CHOICES = 20
CHOICE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Transition:
    """What the model chose. `summary` is the result, the question or the reason, as `next_step` says."""

    next_step: str
    summary: str
    lessons: str
    choices: tuple[str, ...] = ()  # of a question
    forced: bool = False  # not the model's choice: its context was full


def parameters(movement: Movement) -> dict[str, Any]:
    """The tool's schema in this movement: only the steps its rules allow, choices only where it may ask."""
    return _parameters(tuple(movement.next_steps))


@lru_cache(maxsize=256)
def _parameters(next_steps: tuple[str, ...]) -> dict[str, Any]:
    """One object for all calls: what checks arguments by it is made once."""
    choices = {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": CHOICE_CHARS},
        "maxItems": MOST_CHOICES,
        "description": "ASK: answers to choose from, if there are some; the person may answer otherwise",
    }
    return {
        "type": "object",
        "properties": {
            "next_step": {"type": "string", "enum": list(next_steps)},
            "summary": {
                "type": "string",
                "minLength": 1,
                "description": "COMPLETE: the result for the person. ASK: the question. ABORT: the reason. "
                "A movement's name: what was done and what is left.",
            },
            "lessons": {"type": "string", "description": "what the next movement should know; short"},
            **({"choices": choices} if ASK in next_steps else {}),
        },
        "required": ["next_step", "summary"],
    }


def schema(movement: Movement) -> dict[str, Any]:
    """The tool as the chat completions API wants it."""
    return {
        "type": "function",
        "function": {"name": NAME, "description": "Ends this movement.", "parameters": parameters(movement)},
    }


def parse(movement: Movement, arguments: str) -> Transition:
    """Raises BadArguments with a message for the model."""
    given = decode_arguments(arguments, parameters(movement))
    choices = dict.fromkeys(choice.strip() for choice in given.get("choices", []) if choice.strip())
    return Transition(given["next_step"], given["summary"], given.get("lessons", "").strip(), tuple(choices))
