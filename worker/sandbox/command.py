"""What all levels share: a command is started in its workspace and seen to its end, under the caps."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from worker.cancel import CancelToken
from worker.sandbox.base import Caps, Ending, Outcome, SandboxUnavailable, Service
from worker.sandbox.cgroups import ProcessGroup, pids_parent
from worker.sandbox.process import JOIN_GROUP, Running, supervise
from worker.sandbox.watch import Watch


class CommandSandbox(ABC):
    """A level says how a command is started; the rest is here."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._watch = Watch(caps)
        self._groups = pids_parent()

    @abstractmethod
    @contextmanager
    def _started(self, argv: Sequence[str], workspace: Path, service: Service | None) -> Iterator[Running]:
        """Start the command; what it needs beside itself is removed at the end of the block.

        Raises OSError or SandboxUnavailable where it cannot be started.
        """

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
        """See `Sandbox.run`."""
        if cancel.reason is not None:
            return Outcome(Ending.CANCELLED)
        with self._started(argv, workspace, service) as running:
            return supervise(
                running,
                self._watch,
                workspace=workspace,
                timeout=timeout,
                cancel=cancel,
                on_output=on_output,
                on_errors=service.on_errors if service else None,
            )

    def _joined(self, command: list[str], own: int) -> tuple[list[str], ProcessGroup | None]:
        """`command` in a process group of its own, where one can be made; `own` of its processes are the sandbox's."""
        if self._groups is None:
            return command, None
        group = ProcessGroup(self._groups, self._caps.processes + own)
        return ["/bin/sh", "-c", JOIN_GROUP, "sh", str(group.entrance), *command], group


def not_started(error: OSError) -> SandboxUnavailable:
    """The typed refusal that an error of the system is for a command's caller."""
    return SandboxUnavailable(f"the command cannot be started: {os.strerror(error.errno or 0)}")


def exit_code_of(report: bytes, last_output: bytes, what: str) -> int:
    """The shell's code in a sandbox's report (JSON lines). Raises SandboxUnavailable where it tells none."""
    told = last_output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    for line in report.splitlines():
        if "exit-code" in (document := json.loads(line)):
            return int(document["exit-code"])
        told = document.get("error") or told
    raise SandboxUnavailable(f"{what}: {told or 'it was killed'}")
