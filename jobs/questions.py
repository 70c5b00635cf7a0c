"""A job's pending question: what is kept of it, and which answer a reply means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHORT_CHARS = 300  # of a question, in the reason that lists and history show

Question = dict[str, Any]  # question; choices, until (epoch seconds) and default_answer where there are any


def question_of(
    text: str, choices: Sequence[str], until: float | None, default_answer: str | None
) -> Question:
    """What the job's row keeps while it waits for an answer."""
    question: Question = {"question": text}
    if choices:
        question["choices"] = list(choices)
    if until is not None:
        question |= {"until": until, "default_answer": default_answer}
    return question


def question_reason(question: Mapping[str, Any] | None) -> dict[str, Any]:
    """The data of the reason `question`."""
    asked = question or {}
    told = {"question": shortened(asked.get("question") or "")}
    if "until" in asked:
        told |= {"until": asked["until"], "default": shortened(asked["default_answer"])}
    return told


def shortened(text: str) -> str:
    """A text for one line of a list or a history."""
    return text if len(text) <= SHORT_CHARS else f"{text[: SHORT_CHARS - 1]}…"


def chosen_answer(question: Mapping[str, Any] | None, reply: str) -> str:
    """The choice that a reply means by its text or its number (from 1); any other reply as it is.

    The text goes first: where the choices are themselves numbers, `2` is the choice "2", not the second one.
    """
    choices: list[str] = (question or {}).get("choices", [])
    said = reply.strip()
    for choice in choices:
        if said.casefold() == choice.strip().casefold():
            return choice
    number = said.removesuffix(".").removesuffix(")")
    if number.isascii() and number.isdecimal() and len(number) <= 3 and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    return reply
