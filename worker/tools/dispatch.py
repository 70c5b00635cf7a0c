"""From a model's call to a tool result: decode, check, run. Whatever the model wrote, the answer is a result."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from storage.errors import SostenutoError
from storage.text import clean_text
from worker.cancel import Cancelled
from worker.tools.base import Tool, ToolContext, ToolResult
from worker.tools.paths import SANDBOX_ROOT
from worker.tools.text import cut_to_budget, one_line

log = logging.getLogger(__name__)

_LONGEST_ARGUMENTS = 4_000_000
_PREVIEW = 120
_CUT = "[cut here: the result did not fit; ask for less at a time]"
_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/[^\s'\",:;)]{1,4096}")


class BadArguments(Exception):
    """The arguments cannot be used; the message is for the model."""


def run_tool(
    call_name: str, arguments_text: str, context: ToolContext, allowed: Mapping[str, Tool]
) -> ToolResult:
    """Run one call of the model. Raises only Cancelled.

    A call that is not allowed, or whose arguments are no JSON object that fits the schema, is not run: its result says
    what was wrong. An exception in a tool becomes a result that names its type and tells nothing of other folders.
    """
    context.cancel.raise_if_cancelled()
    tool = allowed.get(call_name)
    if tool is None:
        names = ", ".join(sorted(allowed)) or "none"
        return _error(f"there is no tool {one_line(call_name, 64)!r} here. Allowed tools: {names}")
    try:
        arguments = decode_arguments(arguments_text, tool.parameters)
    except BadArguments as error:
        return _error(f"{call_name} was not run: {error}")
    try:
        result = tool.run(context, arguments)
    except Cancelled:
        raise
    except SostenutoError as error:
        hint = f". {error.hint[:1].upper()}{error.hint[1:]}" if error.hint else ""
        return _error(f"{error}{hint}".replace(str(context.workspace), SANDBOX_ROOT))
    except Exception as error:
        log.exception("tool %s failed", call_name)
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _error(_hide_paths(f"{call_name} failed: {type(error).__name__}: {one_line(told)}", context))
    content = cut_to_budget(clean_text(result.content), context.budget_tokens, _CUT)
    return ToolResult(content, result.is_error)


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
    problem = best_match(Draft202012Validator(schema).iter_errors(arguments))
    if problem is not None:
        raise BadArguments(_describe(problem))
    return arguments


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


def _hide_paths(message: str, context: ToolContext) -> str:
    """The message without the worker's own folders: the workspace has its public name, other paths none."""
    message = message.replace(str(context.workspace), SANDBOX_ROOT)
    return _ABSOLUTE_PATH.sub(lambda path: path[0] if path[0].startswith(SANDBOX_ROOT) else "…", message)


def _error(message: str) -> ToolResult:
    return ToolResult(clean_text(f"Error: {message}"), is_error=True)
