"""Every level this machine supports, and a workspace for it."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from worker.cancel import CancelToken
from worker.sandbox.base import Caps, Outcome, Sandbox, SandboxUnavailable
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.landlock import Landlock, Unconfined, landlock_abi

UNSUPPORTED = "this machine does not support the level"
LEVELS: dict[str, Callable[[Caps], Sandbox]] = {"bwrap": Bwrap, "landlock": Landlock, "none": Unconfined}


@dataclass
class Shell:
    """Runs shell commands in one sandbox and one workspace."""

    sandbox: Sandbox
    workspace: Path
    cancel: CancelToken = field(default_factory=CancelToken)
    printed: bytearray = field(default_factory=bytearray)

    def __call__(self, command: str, timeout: float = 60) -> Outcome:
        self.printed.clear()
        return self.sandbox.run(
            ["/bin/bash", "-c", command],
            workspace=self.workspace,
            timeout=timeout,
            cancel=self.cancel,
            on_output=self.printed.extend,
        )

    def says(self, command: str) -> str:
        self(command)
        return self.printed.decode("utf-8", "replace").strip()


# What bwrap is built on, tried without it: namespaces of one's own, a user in them, and the right to mount there. (Root
# whose container keeps CAP_SETFCAP from it gets no user there.)
_NAMESPACES = """
import ctypes, os, sys
libc, user = ctypes.CDLL(None), os.geteuid()
new = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000  # user, mount, pid, network
private = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
held = libc.unshare(new) == 0 and libc.mount(b"none", b"/", None, private, None) == 0
try:
    with open("/proc/self/uid_map", "w") as users:
        users.write(f"1000 {user} 1")
except OSError:
    held = False
sys.exit(0 if held else 1)
"""


@functools.cache
def supported(level: str) -> bool:
    """Whether this machine has what the level is built on; asked of the kernel, not of the sandbox nor of bwrap, so that
    a missing program is a failure and not a reason to skip."""
    if level == "bwrap":
        tried = subprocess.run([sys.executable, "-I", "-S", "-c", _NAMESPACES], check=False)
        return tried.returncode == 0
    return level == "none" or landlock_abi() >= 3


def make_shell(level: str, folder: Path, caps: Caps | None = None) -> Shell:
    """Skips the test where the machine does not support the level, and only there."""
    workspace = folder / "workspace"
    for name in ("input", "output", "logs"):
        (workspace / name).mkdir(parents=True)
    try:
        sandbox = LEVELS[level](caps or Caps())
        shell = Shell(sandbox, workspace)
        shell("true")
    except SandboxUnavailable as error:
        if supported(level):
            raise
        pytest.skip(f"{UNSUPPORTED} {level}: {error}")
    return shell


@pytest.fixture(params=["bwrap", "landlock"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A level that confines."""
    return make_shell(request.param, tmp_path)


@pytest.fixture(params=["bwrap", "landlock", "none"])
def any_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A level that at least cleans up."""
    return make_shell(request.param, tmp_path)
