"""The levels without namespaces: Landlock with a system call filter, and no sandbox at all.

Both run a command under `launcher.py`, which kills all of its processes when it ends and when the worker dies.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.resolver import TEMPORARY_PREFIX
from worker.cancel import CancelToken
from worker.sandbox import seccomp
from worker.sandbox.base import Caps, Ending, Level, Outcome, SandboxUnavailable
from worker.sandbox.cgroups import ProcessGroup, pids_parent
from worker.sandbox.process import JOIN_GROUP, memory_file, spawn, supervise
from worker.sandbox.toolchain import (
    ETC_FILES,
    SYSTEM_FOLDERS,
    environment,
    python_prefix,
    require_outside_toolchain,
)
from worker.sandbox.watch import Watch

_LAUNCHER = Path(__file__).with_name("launcher.py")
_OWN_PROCESSES = 1  # the launcher
_CREATE_RULESET = 444
_ASK_VERSION = 1
_LEAST_ABI = 3  # before Linux 6.2, truncate(2) was not held back

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_MORE_ETC = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")


def landlock_abi() -> int:
    """The version of Landlock this kernel offers; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)), 0)


class Unconfined:
    """No sandbox: a minimal environment, resource limits, and the death of all processes that do not resist. The
    command can read and write what the worker can."""

    level = Level.NONE

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._watch = Watch(caps)
        self._groups = pids_parent()
        self.description = "none: commands run UNSANDBOXED, with all rights of the worker"

    def run(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        timeout: float,
        cancel: CancelToken,
        on_output: Callable[[bytes], None],
    ) -> Outcome:
        if cancel.reason is not None:
            return Outcome(Ending.CANCELLED)
        try:
            temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}tmp-", dir=workspace))
        except OSError as error:
            raise _not_started(error) from None
        try:
            running = self._start(argv, workspace, temporary)
            return supervise(
                running, self._watch, workspace=workspace, timeout=timeout, cancel=cancel, on_output=on_output
            )
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _start(self, argv: Sequence[str], workspace: Path, temporary: Path) -> _Running:
        plan = {
            "argv": list(argv),
            "folder": str(workspace),
            "environment": environment(workspace, str(workspace), str(temporary)),
            "limits": {
                "RLIMIT_CORE": 0,
                "RLIMIT_DATA": self._caps.memory_bytes,
                "RLIMIT_FSIZE": self._caps.file_bytes,
                "RLIMIT_NOFILE": self._caps.open_files,
            },
            # The user's other processes count too, so this is only a stopgap where no process group can be made.
            "processes": None if self._groups else self._caps.processes,
            "landlock": self._confinement(workspace),
        }
        try:
            return _Running(plan, self._caps, self._groups)
        except OSError as error:
            raise _not_started(error) from None

    def _confinement(self, workspace: Path) -> dict[str, Any] | None:  # noqa: ARG002  Landlock needs it
        return None


class Landlock(Unconfined):
    """The workspace, a read-only toolchain, no capabilities, no sockets, no signals to others. Weaker than bwrap in what
    docs/tools.md lists. Raises SandboxUnavailable where the kernel's Landlock is missing or too old."""

    level = Level.LANDLOCK

    def __init__(self, caps: Caps) -> None:
        super().__init__(caps)
        self._abi = landlock_abi()
        if self._abi < _LEAST_ABI:
            raise SandboxUnavailable(
                f"Landlock ABI {_LEAST_ABI} is needed, this kernel has {self._abi or 'none'}"
            )
        if not seccomp.supported():
            raise SandboxUnavailable(f"there is no system call filter for {platform.machine()}")
        scopes = self._abi >= 6
        self._filter = seccomp.program(seccomp.LANDLOCK if scopes else seccomp.LANDLOCK + seccomp.SIGNALS)
        signals = "signals only to its own processes" if scopes else "no signals at all"
        self.description = (
            f"landlock: ABI {self._abi}, no sockets, {signals}, no capabilities, system call filter"
        )

    def _confinement(self, workspace: Path) -> dict[str, Any]:
        require_outside_toolchain(workspace)
        everything = (1 << (13 + (self._abi >= 2) + (self._abi >= 3))) - 1
        everything |= _IOCTL_DEVICE if self._abi >= 5 else 0
        toolchain = [*SYSTEM_FOLDERS, *ETC_FILES, *_MORE_ETC]
        if prefix := python_prefix(workspace):
            toolchain.append(str(prefix))
        devices = _READ_FILE | _WRITE_FILE | (_IOCTL_DEVICE if self._abi >= 5 else 0)
        wanted = [(path, _READ) for path in toolchain] + [(path, devices) for path in _DEVICES]
        paths = [(path, rights if Path(path).is_dir() else rights & _ON_FILES) for path, rights in wanted]
        return {
            "files": everything,
            "network": 3 if self._abi >= 4 else 0,  # bind and connect, TCP
            "scoped": 3 if self._abi >= 6 else 0,  # abstract Unix sockets, signals
            "ruleset_size": 24 if self._abi >= 6 else 16 if self._abi >= 4 else 8,
            "paths": [(path, rights) for path, rights in paths if Path(path).exists()]
            + [(str(workspace), everything)],
            "filter": base64.b64encode(self._filter).decode(),
        }


def _not_started(error: OSError) -> SandboxUnavailable:
    return SandboxUnavailable(f"the command cannot be started: {os.strerror(error.errno or 0)}")


class _Running:
    """The launcher, and the pipe that keeps its command alive."""

    def __init__(self, plan: dict[str, Any], caps: Caps, groups: Path | None) -> None:
        lifeline, self._lifeline = os.pipe()
        status, told = os.pipe()
        plan_fd = memory_file(json.dumps(plan).encode())
        self._group = ProcessGroup(groups, caps.processes + _OWN_PROCESSES) if groups else None
        inherited = [plan_fd, lifeline, told]
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), *map(str, inherited)]
        if self._group:
            command = ["/bin/sh", "-c", JOIN_GROUP, "sh", str(self._group.entrance), *command]
        try:
            self._process = spawn(command, pass_fds=inherited)
        except BaseException:
            os.close(self._lifeline)
            os.close(status)
            raise
        finally:
            for fd in inherited:
                os.close(fd)
        assert self._process.stdout is not None
        self._status = os.fdopen(status, "rb")
        self.pid = self._process.pid
        self.output_fd = self._process.stdout.fileno()
        self.done_fd = os.pidfd_open(self.pid)  # the launcher ends last

    def kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def exit_code(self, last_output: bytes) -> int:
        self._process.wait()
        report = self._status.read()
        answer = json.loads(report) if report else {}
        if "exit-code" in answer:
            return int(answer["exit-code"])
        told = answer.get("error") or last_output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SandboxUnavailable(f"the command could not be started: {told or 'its launcher was killed'}")

    def close(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._status.close()
        os.close(self.done_fd)
        if self._group:
            self._group.remove()
