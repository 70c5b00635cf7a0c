"""deploy/seccomp.json on a real process: an ordinary user without privileges, as in the container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.seccomp import BUBBLEWRAP, LEFT_OUT, profile
from tests.security.identities import ROOT, ordinary

FILE = ROOT / "deploy" / "seccomp.json"

# Each asks for something harmless, and prints the error: EPERM is the filter's, any other the kernel's own.
REFUSED = r"""
import ctypes, errno, json, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
seccomp = ctypes.CDLL("libseccomp.so.2")
told = {}
for name in sys.argv[1].split():
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        ctypes.set_errno(0)
        libc.syscall(number, *[ctypes.c_long(-1)] * 6)
        told[name] = errno.errorcode.get(ctypes.get_errno(), "none")
for family in (40, 38, 17):  # vsock, alg, packet
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
        told[f"socket {family}"] = "none"
    except OSError as error:
        told[f"socket {family}"] = errno.errorcode[error.errno]
print(json.dumps(told))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that another user can reach and write into."""
    with tempfile.TemporaryDirectory(prefix="sostenuto-home-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def _run(confined: dict[str, Any], home: Path, *command: str) -> str:
    file = home / "profile.json"
    file.write_text(json.dumps(confined), encoding="utf-8")
    (home / "stage").mkdir(exist_ok=True)
    env = os.environ | {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    launcher = [
        "setpriv",
        "--no-new-privs",
        sys.executable,
        "-m",
        "tests.deploy.confined",
        str(file),
        sys.executable,
    ]
    whole = ordinary([*launcher, *command], home / "stage")
    ran = subprocess.run(whole, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_the_file_is_what_its_script_makes() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == profile(), (
        "python deploy/seccomp.py > deploy/seccomp.json"
    )


def test_the_strongest_sandbox_works_under_the_profile(home: Path) -> None:
    """Its own probe says so, as at each worker's start."""
    told = json.loads(_run(json.loads(FILE.read_text(encoding="utf-8")), home, "-m", "worker.sandbox"))
    assert told["level"] == "bwrap", told


@pytest.mark.parametrize("name", BUBBLEWRAP)
def test_none_of_what_bubblewrap_needs_is_allowed_for_nothing(name: str, home: Path) -> None:
    """Without it the level is weaker: so it is needed, and the filter is really in force."""
    less = profile()
    less["syscalls"][0]["names"].remove(name)
    told = json.loads(_run(less, home, "-m", "worker.sandbox"))
    assert told["level"] != "bwrap", told


def test_what_the_profile_leaves_out_is_refused(home: Path) -> None:
    names = " ".join(" ".join(LEFT_OUT.values()).split())
    told: dict[str, str] = json.loads(_run(profile(), home, "-c", REFUSED, names))
    assert len(told) > 50
    assert {name: error for name, error in told.items() if error != "EPERM"} == {}
