"""What is wrong with a form, in the words of the page: what the API says in English, in both languages."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from jobs.errors import (
    FileRejected,
    InvalidInstruction,
    InvalidPiece,
    PredecessorNotFound,
    SostenutoError,
    UnknownPiece,
)
from jobs.web.words import Words

_FIELD_OF_ERROR: list[tuple[type[SostenutoError], str]] = [
    (InvalidInstruction, "instruction"),
    (UnknownPiece, "piece"),
    (InvalidPiece, "piece"),
    (FileRejected, "files"),
    (PredecessorNotFound, "inherits_from"),
]
_NUMBERS = {"int_type", "int_parsing", "int_from_float", "float_parsing", "float_type", "finite_number"}


def of_validation(error: ValidationError, words: Words) -> dict[str, str]:
    """The first mistake of each field."""
    return {str(entry["loc"][-1]): _told(entry, words) for entry in reversed(error.errors())}


def _told(entry: Any, words: Words) -> str:
    kind = "number" if entry["type"] in _NUMBERS else entry["type"]
    template = words.get(f"mistake.{kind}")
    return str(entry["msg"]) if template is None else template.format(**entry.get("ctx", {}))


def of_refusal(error: SostenutoError, words: Words) -> dict[str, str]:
    """An error of submitting, at its field. The detail, which may name a file or a line, stays in English."""
    field = next((name for kind, name in _FIELD_OF_ERROR if isinstance(error, kind)), "form")
    hint = f" ({error.hint})" if error.hint and "sostenuto" not in error.hint else ""
    lead = words.get(f"mistake.{field}") if words.language != "en" else None
    if field in ("instruction", "inherits_from") and lead:
        return {field: lead}
    return {field: f"{lead} — {error}{hint}" if lead else f"{error}{hint}"}
