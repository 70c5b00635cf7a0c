"""The arguments of a model's call: one decoder, for the call as it runs and for its replay from the transcript."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from jobs.plain_text import one_line

_LONGEST_ARGUMENTS = 4_000_000
_PREVIEW = 120


class BadArguments(Exception):
    """The arguments cannot be used; the message is for the model."""


def decode_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as an object that fits the tool's schema; also used to replay calls from the transcript.

    An array or object given as a JSON string, where the schema wants an array or object, is decoded once. Raises
    BadArguments with a message that names the field and shows at most a short preview.
    """
    if len(text) > _LONGEST_ARGUMENTS:
        raise BadArguments(
            f"its arguments have {len(text)} characters, at most {_LONGEST_ARGUMENTS} are allowed"
        )
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is empty" if not text.strip() else one_line(str(error), 100)
        raise BadArguments(
            f"its arguments are not valid JSON ({reason}): {one_line(text, _PREVIEW)}"
        ) from None
    if not isinstance(value, dict):
        raise BadArguments(f"its arguments must be a JSON object, not: {one_line(text, _PREVIEW)}")
    arguments = _decode_strings(value, schema.get("properties", {}))
    if schema:
        problem = best_match(_validator(schema).iter_errors(arguments))
        if problem is not None:
            raise BadArguments(_describe(problem))
    return arguments


_validators: OrderedDict[int, tuple[Mapping[str, Any], Draft202012Validator]] = OrderedDict()
_MOST_VALIDATORS = 512


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    """The validator of this very object, which tools keep; it is held, so that its id stays its own."""
    known = _validators.get(id(schema))
    if known is None:
        known = _validators[id(schema)] = (schema, Draft202012Validator(schema))
        if len(_validators) > _MOST_VALIDATORS:
            with contextlib.suppress(KeyError):  # another thread was quicker
                _validators.popitem(last=False)
    return known[1]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _decode_strings(arguments: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    decoded = {}
    for key, value in arguments.items():
        wanted = properties.get(key, {}).get("type", ())
        kinds = {wanted} if isinstance(wanted, str) else set(wanted)
        decoded[key] = value
        if isinstance(value, str) and "string" not in kinds and kinds & {"array", "object"}:
            try:
                inner = json.loads(value)
            except (ValueError, RecursionError):
                continue
            if isinstance(inner, list | dict):
                decoded[key] = inner
    return decoded


def _describe(problem: ValidationError) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.absolute_path)
    where = f"argument {place.removeprefix('.')!r}: " if place else ""
    return where + one_line(problem.message, 240)
