"""The levels without namespaces: Landlock with a system call filter, and no sandbox at all.

Both run a command under `launcher.py`, which kills all of its processes when it ends and when the worker dies.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from jobs.resolver import TEMPORARY_PREFIX
from worker.sandbox import seccomp
from worker.sandbox.base import Caps, Level, SandboxUnavailable, Service
from worker.sandbox.cgroups import ProcessGroup
from worker.sandbox.command import CommandSandbox, exit_code_of, not_started
from worker.sandbox.process import Child, memory_file, spawn
from worker.sandbox.toolchain import (
    ETC_FILES,
    SYSTEM_FOLDERS,
    environment,
    python_prefix,
    require_outside_toolchain,
)

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


class Unconfined(CommandSandbox):
    """No sandbox: a minimal environment, resource limits, and the death of all processes that do not resist. The
    command can read and write what the worker can."""

    level = Level.NONE

    def __init__(self, caps: Caps) -> None:
        super().__init__(caps)
        self.description = "none: commands run UNSANDBOXED, with all rights of the worker"

    @contextlib.contextmanager
    def _started(self, argv: Sequence[str], workspace: Path, service: Service | None) -> Iterator[_Running]:
        try:
            temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}tmp-", dir=workspace))
        except OSError as error:
            raise not_started(error) from None
        try:
            plan = self._plan(argv, workspace, temporary, service)
            try:
                running = self._start(plan, service)
            except OSError as error:
                raise not_started(error) from None
            yield running
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _plan(
        self, argv: Sequence[str], workspace: Path, temporary: Path, service: Service | None
    ) -> dict[str, Any]:
        variables = environment(workspace, str(workspace), str(temporary))
        return {
            "argv": list(argv),
            "folder": str(workspace),
            "environment": variables | dict(service.variables if service else {}),
            "limits": {
                "RLIMIT_CORE": 0,
                "RLIMIT_DATA": self._caps.memory_bytes,
                "RLIMIT_FSIZE": self._caps.file_bytes,
                "RLIMIT_NOFILE": self._caps.open_files,
            },
            # The user's other processes count too, so this is only a stopgap where no process group can be made.
            "processes": None if self._groups else self._caps.processes,
            "landlock": self._confinement(workspace, service.folders if service else ()),
        }

    def _start(self, plan: dict[str, Any], service: Service | None) -> _Running:
        with contextlib.ExitStack() as cleanup:
            plan_fd = memory_file(json.dumps(plan).encode())
            cleanup.callback(os.close, plan_fd)
            lifeline, held = os.pipe()
            cleanup.callback(os.close, lifeline)
            reader, told = os.pipe()
            report = os.fdopen(reader, "rb")  # one owner: a number closed twice would be somebody else's
            cleanup.callback(os.close, told)
            inherited = [plan_fd, lifeline, told]
            command = [sys.executable, "-I", "-S", str(_LAUNCHER), *map(str, inherited)]
            try:
                command, group = self._joined(command, _OWN_PROCESSES)
                return _Running(spawn(command, pass_fds=inherited, service=service), report, group, held)
            except OSError:
                os.close(held)
                report.close()
                raise

    def _confinement(self, workspace: Path, folders: Sequence[Path]) -> dict[str, Any] | None:  # noqa: ARG002  Landlock needs them
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

    def _confinement(self, workspace: Path, folders: Sequence[Path]) -> dict[str, Any]:
        require_outside_toolchain(workspace)
        everything = (1 << (13 + (self._abi >= 2) + (self._abi >= 3))) - 1
        everything |= _IOCTL_DEVICE if self._abi >= 5 else 0
        toolchain = [*SYSTEM_FOLDERS, *ETC_FILES, *_MORE_ETC, *map(str, folders)]
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


class _Running(Child):
    """The launcher, and the pipe that keeps its command alive."""

    def __init__(
        self, process: subprocess.Popen[bytes], report: BinaryIO, group: ProcessGroup | None, lifeline: int
    ) -> None:
        super().__init__(process, report, group)
        self._lifeline = lifeline
        self.done_fd = os.pidfd_open(self.pid)  # the launcher ends last

    def kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def exit_code(self, last_output: bytes) -> int:
        self._process.wait()
        return exit_code_of(self.report.read(), last_output, "the command could not be started")
