"""What a sandbox promises, whatever holds it up: the levels, the caps, and how a command is run.

A sandboxed command sees its workspace and a read-only toolchain, and nothing else of the machine: no file, no process,
no network, no secret of the worker's environment. When it ends, is cancelled or times out, everything it started dies.
What each level holds back, and what it does not, is written in docs/tools.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from storage.errors import SostenutoError
from worker.cancel import CancelToken


class Level(StrEnum):
    """From the strongest to none."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = "none"


class SandboxUnavailable(SostenutoError):
    """No sandbox of the demanded level works here, so commands are refused. The message says what was tried."""


class SandboxSettings(Protocol):
    """What of the settings decides about the sandbox."""

    @property
    def allow_unsandboxed(self) -> bool: ...
    @property
    def sandbox_min(self) -> Literal["bwrap", "landlock"] | None: ...
    @property
    def max_file_bytes(self) -> int: ...
    @property
    def max_workspace_bytes(self) -> int: ...
    @property
    def max_workspace_files(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Caps:
    """What one command may use, with all the processes it starts."""

    file_bytes: int = 100 << 20
    workspace_bytes: int = 1 << 30
    workspace_files: int = 10_000
    memory_bytes: int = 2 << 30
    processes: int = 256
    open_files: int = 1024
    tmp_bytes: int = 512 << 20


class Ending(StrEnum):
    """Why a command is over."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `exit_code` is the shell's (128 + signal for a killed one); None unless it exited."""

    ending: Ending
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """What a command that serves gets beside its workspace: an MCP server of the operator's, never a command of an agent."""

    stdin: int
    """A descriptor to read from, inherited as the standard input; the caller closes its own."""
    on_errors: Callable[[bytes], None]
    """Gets what is printed on stderr; `on_output` then gets stdout alone."""
    variables: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    """Further folders that it may read."""


class Sandbox(Protocol):
    """Runs commands. One instance serves all threads of a process."""

    @property
    def level(self) -> Level: ...

    description: str
    """One line for people: the level, and why it is not a stronger one."""

    def run(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        timeout: float,
        cancel: CancelToken,
        on_output: Callable[[bytes], None],
        service: Service | None = None,
    ) -> Outcome:
        """Run `argv` with the workspace as its working directory; stdin is empty, stdout and stderr are one stream
        handed to `on_output` as it comes, in the calling thread.

        When it returns or raises, no process of the command is alive and nothing more of it is coming. Raises
        SandboxUnavailable when the sandbox cannot be set up (the command then did not start). A cancel is an
        Outcome, not an exception, so that the caller can still tell what was printed.
        """
        ...
