"""What a tool is: its name and schema for the model, what a crash means for it, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from storage.records import NewImage
from worker.cancel import CancelToken
from worker.sandbox.base import Sandbox


class CrashPolicy(StrEnum):
    """What to do with a call whose worker died before its result was committed."""

    REPEATABLE = "repeatable"
    """Running it again gives the same end state: the next worker just does so."""

    UNKNOWN_AFTER_CRASH = "unknown_after_crash"
    """It may or may not have taken effect: it is answered "interrupted, outcome unknown", never run again."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told. `content` is clean text (no NUL, no lone surrogate) within the call's budget."""

    content: str
    is_error: bool = False
    images: tuple[NewImage, ...] = ()
    """images that the model is to see; stored with the result, shown in the user message after it"""
    folder: str | None = None
    """where the job's next command begins, relative to the workspace; None: as before"""
    ran: bool = True
    """False: the tool was not even begun, for the call could be none of its"""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The surroundings of one call."""

    workspace: Path
    cancel: CancelToken
    budget_tokens: int
    job_id: str
    call_id: str
    """The same when the call is run again after a crash, and no other call's of the job."""
    sandbox: Sandbox | None
    bash_timeout: float
    """Seconds a command may take, at most; a call may ask for less."""
    folder: str = ""
    """Where a command begins, relative to the workspace: where the job's last one ended."""


class Tool(Protocol):
    """One thing the model can call. Instances are shared by all jobs of a process and keep no state."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments: an object."""
        ...

    @property
    def crash(self) -> CrashPolicy: ...

    @property
    def edits(self) -> bool:
        """True if a movement must have `edit: true` to use it."""
        ...

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run one call whose arguments fit the schema. Raises only Cancelled; the user's and the model's mistakes
        are results with is_error=True."""
        ...
