"""From a model's call to a tool result: decode, check, run. Whatever the model wrote, the answer is a result."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from jobs.arguments import BadArguments, decode_arguments
from jobs.plain_text import one_line
from storage.errors import LeaseLost, SostenutoError, StorageError
from storage.text import clean_text
from worker.cancel import Cancelled
from worker.tools.base import Tool, ToolContext, ToolResult
from worker.tools.paths import SANDBOX_ROOT
from worker.tools.spill import spill
from worker.tools.text import cut_to_budget

log = logging.getLogger(__name__)

_CUT = "[cut here: the result did not fit; ask for less at a time]"
_SPILLED = "[cut here: all {size} characters of the result are in {path}: Read or Grep that]"
_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/[^\s'\",:;)]{1,4096}")


def run_tool(
    call_name: str, arguments_text: str, context: ToolContext, allowed: Mapping[str, Tool]
) -> ToolResult:
    """Run one call of the model. Raises only Cancelled and, from tools that use the database, LeaseLost and StorageError.

    A call that is not allowed, or whose arguments are no JSON object that fits the schema, is not run: its result says
    what was wrong. An exception in a tool becomes a result that names its type and tells nothing of other folders.
    """
    context.cancel.raise_if_cancelled()
    tool = allowed.get(call_name)
    if tool is None:
        names = ", ".join(sorted(allowed)) or "none"
        return _not_run(f"there is no tool {one_line(call_name, 64)!r} here. Allowed tools: {names}")
    try:
        arguments = decode_arguments(arguments_text, tool.parameters)
    except BadArguments as error:
        return _not_run(f"{call_name} was not run: {error}")
    try:
        result = tool.run(context, arguments)
    except (Cancelled, LeaseLost, StorageError):
        raise  # nobody knows what was stored: the next run repeats the call
    except SostenutoError as error:
        hint = f". {error.hint[:1].upper()}{error.hint[1:]}" if error.hint else ""
        return _error(f"{error}{hint}".replace(str(context.workspace), SANDBOX_ROOT))
    except Exception as error:
        log.exception("tool %s failed", call_name)
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _error(_hide_paths(f"{call_name} failed: {type(error).__name__}: {one_line(told)}", context))
    text = clean_text(result.content)
    content = cut_to_budget(text, context.budget_tokens, _CUT)
    if content != text and (path := spill(text, context)):
        content = cut_to_budget(text, context.budget_tokens, _SPILLED.format(path=path, size=len(text)))
    return replace(result, content=content)


def _hide_paths(message: str, context: ToolContext) -> str:
    """The message without the worker's own folders: the workspace has its public name, other paths none."""
    message = message.replace(str(context.workspace), SANDBOX_ROOT)
    return _ABSOLUTE_PATH.sub(lambda path: path[0] if path[0].startswith(SANDBOX_ROOT) else "…", message)


def _error(message: str) -> ToolResult:
    return ToolResult(clean_text(f"Error: {message}"), is_error=True)


def _not_run(message: str) -> ToolResult:
    return replace(_error(message), ran=False)
