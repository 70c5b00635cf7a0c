"""An error as its user sees it: one line, a hint, an exit code; never a secret, never a traceback unasked."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass

from typer import Abort, TyperException

from jobs.cli.context import masked
from jobs.cli.text import one_line
from jobs.errors import SostenutoError

DEBUG_VARIABLE = "SOSTENUTO_DEBUG"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told of an error; with --json exactly these fields."""

    type: str
    message: str
    hint: str | None
    exit_code: int


def report(error: Exception, *, as_json: bool) -> int:
    """Print an error on stderr; returns its exit code."""
    failure = failure_of(error)
    if os.environ.get(DEBUG_VARIABLE):
        print(masked("".join(traceback.format_exception(error))), file=sys.stderr)
    if as_json:
        print(json.dumps({"error": asdict(failure)}), file=sys.stderr)
    else:
        hint = f" ({failure.hint})" if failure.hint else ""
        print(f"error: {failure.message}{hint}", file=sys.stderr)
    return failure.exit_code


def failure_of(error: Exception) -> Failure:
    """An error in words. Those of a library are summed up as unexpected, with their type."""
    if isinstance(error, SostenutoError):
        return _failure(type(error).__name__, str(error), error.hint, error.exit_code)
    if isinstance(error, TyperException):
        return _failure("UsageError", _usage_message(error), _usage_hint(error), error.exit_code)
    if isinstance(error, Abort):
        return _failure("Aborted", "nothing was done", None, 1)
    kind = type(error).__name__
    if isinstance(error, OSError) and error.filename:  # a disk that is full, a folder that may not be written
        return _failure(kind, f"{error.filename}: {(error.strerror or kind).lower()}", None, 1)
    hint = f"please report it, with the traceback that {DEBUG_VARIABLE}=1 shows"
    return _failure(kind, f"unexpected {kind}: {error}", hint, 1)


def _usage_message(error: TyperException) -> str:
    message = error.message if getattr(error, "possibilities", None) else error.format_message()
    return message.rstrip(".")


def _usage_hint(error: TyperException) -> str | None:
    near = getattr(error, "possibilities", None)
    if near:
        return f"did you mean {min(near)}?"
    context = getattr(error, "ctx", None)
    return f"see: {context.command_path} --help" if context else None


def _failure(kind: str, message: str, hint: str | None, exit_code: int) -> Failure:
    return Failure(kind, one_line(masked(message), 2000), hint and one_line(masked(hint), 1000), exit_code)
