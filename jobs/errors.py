"""Every error a producer may meet; those of the storage are re-exported, so that callers import from here.

    SostenutoError                  exit code 1
    ├── StorageError …              5   the database (see storage.errors)
    ├── JobNotFound                 3
    ├── NotFound                    3   a file, a comment, anything else that is not there
    │   └── PredecessorNotFound     3   the job to inherit from
    ├── IllegalTransition           4
    ├── TooManySubtasks             1   the agent reads it
    ├── BrokerUnavailable           6
    ├── TooManyQueued               8   `limits.max_queued`: later perhaps
    ├── JobDidNotSucceed            7   `submit --wait` and `watch --wait`
    └── UsageError                  2   what the user gave is wrong
        ├── ConfigurationError      a setting; names the variable or the file and line
        ├── InvalidPiece            file, line and column
        ├── UnknownPiece            with a "did you mean"
        ├── InvalidInstruction      empty or too long
        ├── FileRejected            an input file or a path that may not be used
        │   └── FileInTheWay        a folder where a file is meant, or a file where a folder is
        └── AmbiguousJobId          an abbreviated id that fits several jobs

Exit codes of the command line: 0 ok · 1 failed or unexpected · 2 bad usage or input · 3 not found · 4 not possible
in this state · 5 database · 6 broker · 7 the job did not succeed (--wait) · 8 too many jobs wait · 130 interrupted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from storage.errors import (
    DatabaseUnavailable,
    DiskFull,
    IllegalTransition,
    InboxChanged,
    JobNotFound,
    LeaseLost,
    NoOpenChildren,
    RequestPending,
    SchemaMismatch,
    SostenutoError,
    StorageError,
    TooManyQueued,
    TooManySubtasks,
)

__all__ = [
    "AmbiguousJobId",
    "BrokerUnavailable",
    "ConfigurationError",
    "DatabaseUnavailable",
    "DiskFull",
    "FileInTheWay",
    "FileRejected",
    "IllegalTransition",
    "InboxChanged",
    "InvalidInstruction",
    "InvalidPiece",
    "JobDidNotSucceed",
    "JobNotFound",
    "LeaseLost",
    "NoOpenChildren",
    "NotFound",
    "PredecessorNotFound",
    "RequestPending",
    "SchemaMismatch",
    "SostenutoError",
    "StorageError",
    "TooManyQueued",
    "TooManySubtasks",
    "UnknownPiece",
    "UsageError",
    "did_you_mean",
    "nearest",
]


class UsageError(SostenutoError):
    """What the user gave cannot be used; nothing was changed."""

    exit_code = 2


class ConfigurationError(UsageError):
    """A setting is unknown or has a bad value. The message names where it was set, and never shows a secret."""


class InvalidPiece(UsageError):
    """A piece's YAML is wrong; `file`, `line` and `column` (both from 1) say where."""

    def __init__(
        self,
        problem: str,
        *,
        file: str,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {problem}", hint=hint)
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column


class UnknownPiece(UsageError):
    """There is neither a piece of the user's nor a built-in one with this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        hint = did_you_mean(name, known) or "list the pieces with: sostenuto pieces list"
        super().__init__(f"there is no piece {name!r}", hint=hint)
        self.name = name


class InvalidInstruction(UsageError):
    """The instruction is empty or longer than the limit."""


class FileRejected(UsageError):
    """A file or path may not be used: outside the workspace, too large, not a plain file …"""


class FileInTheWay(FileRejected):
    """What is in the workspace does not fit the path: a folder where a file is meant, or a file where a folder is."""


class AmbiguousJobId(UsageError):
    """An abbreviated job id fits several jobs."""

    def __init__(self, prefix: str, matches: Sequence[str]) -> None:
        super().__init__(
            f"{prefix!r} fits several jobs: {', '.join(matches)}", hint="give more characters of the id"
        )
        self.prefix = prefix
        self.matches = list(matches)


class NotFound(SostenutoError):
    """Something other than a job is not there."""

    exit_code = 3


class PredecessorNotFound(NotFound):
    """The job named to inherit from is not there, is someone else's, or has not ended."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"there is no ended job {job_id} of yours to inherit from",
            hint="see which have ended with: sostenuto list; wait for one with: sostenuto watch JOB",
        )
        self.job_id = job_id


class BrokerUnavailable(SostenutoError):
    """The broker cannot be reached. Accepted jobs are safe: they wait in the database."""

    exit_code = 6


class JobDidNotSucceed(SostenutoError):
    """The job that was waited for ended without success, or waits for a person."""

    exit_code = 7


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known name nearest to this one in any case, or nothing when none is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    return [by_lower[found] for found in difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?` for the nearest known name, or None when none is near."""
    return next((f"did you mean {near!r}?" for near in nearest(name, known)), None)
