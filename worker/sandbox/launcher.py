"""Runs one command at the levels without namespaces, and sees all of it dead. A program of its own, not imported.

    python -I -S launcher.py PLAN LIFELINE STATUS        (descriptors)

PLAN holds JSON (see worker/sandbox/landlock.py). LIFELINE is a pipe whose other end only the worker has: when it closes,
because the worker wants the command dead or is dead itself, everything is killed. STATUS gets one JSON line: how the
command exited, or why it could not be started.

This process becomes the reaper of all that the command leaves behind: whatever daemonises becomes its child, and it
ends only when it has no child left. The command cannot signal it (Landlock's scope, or the system call filter); at
level none it can, and that level promises nothing.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT = (
    38,
    22,
    24,
    36,
    47,
)
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_LINUX_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _call(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, *arguments: int) -> int:
    return int(_libc.prctl(option, *(ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4])))


def drop_capabilities() -> None:
    """Leave nothing to uid 0 but its files; a later exec gives none back."""
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapabilityHeader(_LINUX_CAPABILITY_VERSION_3, 0)
    _call(_libc.capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()), "capset")


def restrict_files(plan: dict[str, Any]) -> None:
    """Enter the Landlock domain of the plan."""
    rules = _Ruleset(plan["files"], plan["network"], plan["scoped"])
    ruleset = _call(
        _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), plan["ruleset_size"], 0), "landlock ruleset"
    )
    for path, allowed in plan["paths"]:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed, folder)
        _call(
            _libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0),
            f"landlock rule for {path}",
        )
        os.close(folder)
    _call(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def filter_calls(code: bytes) -> None:
    """Install the system call filter."""
    program = _FilterProgram(len(code) // 8, code)
    pointer = ctypes.cast(ctypes.byref(program), ctypes.c_void_p)
    _call(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), pointer, 0, 0), "seccomp")


def user_tasks() -> int:
    """How many processes and threads this user has: the kernel counts them all against RLIMIT_NPROC."""
    tasks = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == os.getuid():
                tasks += sum(1 for _ in (folder / "task").iterdir())
    return tasks


def become_command(plan: dict[str, Any]) -> None:
    """In the child: give everything up, then exec. Raises OSError."""
    os.setsid()
    for name, value in plan["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))
    if plan["processes"] is not None:
        most = plan["processes"] + user_tasks()
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.chdir(plan["folder"])
    _call(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
    if plan["landlock"]:
        drop_capabilities()
        restrict_files(plan["landlock"])
        filter_calls(base64.b64decode(plan["landlock"]["filter"]))
    os.execve(plan["argv"][0], plan["argv"], plan["environment"])  # noqa: S606  what this program is for


def start(plan: dict[str, Any], inherited: list[int]) -> tuple[int, str]:
    """Fork the command; its pid and, if it could not be started, why."""
    failed, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in inherited:
                os.close(fd)
            become_command(plan)
        except BaseException as error:  # noqa: BLE001  a forked child must not go on as a second launcher
            os.write(tell, str(error).encode()[:500])
        os._exit(127)
    os.close(tell)
    with os.fdopen(failed, "rb") as reader:
        return pid, reader.read().decode("utf-8", "replace")


def wait_for(command: int, lifeline: int, wakeup: int) -> int | None:
    """The command's wait status; None if the lifeline closed first."""
    while True:
        ready, _, _ = select.select([lifeline, wakeup], [], [])
        if lifeline in ready:
            return None
        os.read(wakeup, 512)
        while (ended := _reap()) is not None:
            pid, status = ended
            if pid == command:
                return status


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _descendants() -> list[int]:
    found = [os.getpid()]
    for parent in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_bytes().split())
    return found[1:]


def kill_all() -> None:
    """Until there is no child: each death hands its children to us, so none can get away."""
    while True:
        # Stopped first, so that what forks fast does not outrun the killing.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG) != (
                0,
                0,
            ):  # all that are dead: looking at each again is what takes long
                pass
        except ChildProcessError:
            return


def main() -> None:
    plan_fd, lifeline, status = map(int, sys.argv[1:4])
    with os.fdopen(plan_fd, "rb") as file:
        plan = json.load(file)
    _call(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "subreaper")
    wakeup, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    command, failure = start(plan, [lifeline, status, wakeup, tell])
    # Input and output must end with the command, not with us.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    os.dup2(0, 2)
    ended = None if failure else wait_for(command, lifeline, wakeup)
    kill_all()
    if failure:
        os.write(status, json.dumps({"error": failure}).encode())
    elif ended is not None:
        code = os.waitstatus_to_exitcode(ended)
        os.write(status, json.dumps({"exit-code": code if code >= 0 else 128 - code}).encode())


if __name__ == "__main__":
    main()
