"""The same attacks when the worker is an ordinary user, and when it is root without capabilities."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.security.identities import ROOT, ordinary, without_capabilities
from tests.servers.session import NOBODY

Become = Callable[[Sequence[str], Path], list[str]]
INSIDE = ["tests/sandbox/test_attacks.py", "tests/sandbox/test_reach.py"]
ENDINGS = [
    "tests/sandbox/test_endings.py",
    "tests/sandbox/test_caps.py::test_one_process_cannot_take_more_memory",
    "tests/sandbox/test_caps.py::test_many_processes_cannot_take_more_memory_together",
    "tests/sandbox/test_caps.py::test_a_file_cannot_grow_further",
    "tests/sandbox/test_caps.py::test_the_workspace_cannot_grow_further",
    "tests/security/test_inert.py::test_no_tool_runs_or_imports_what_lies_in_the_workspace",
    # A real worker process of that user, killed while its command runs.
    "tests/resilience/test_shutdown.py::test_nothing_of_a_command_survives_its_killed_worker",
]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the other user can reach and write into."""
    with tempfile.TemporaryDirectory(prefix="sostenuto-home-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def _run(become: Become, home: Path, command: Sequence[str]) -> str:
    (home / "stage").mkdir()
    (home / "tmp").mkdir(mode=0o777)
    (home / "tmp").chmod(0o777)
    env = os.environ | {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("CI", None)  # a level that this worker cannot have is left out: tests.security.guard judges that
    whole = become(command, home / "stage")
    ran = subprocess.run(whole, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.parametrize(
    ("become", "shown"),
    [
        (ordinary, f"{NOBODY if os.geteuid() == 0 else os.geteuid()} CapEff:\t0000000000000000"),
        (without_capabilities, f"{os.geteuid()} CapEff:\t0000000000000000"),
    ],
)
def test_who_the_others_are(become: Become, shown: str, home: Path) -> None:
    script = "import os; print(os.geteuid(), *[l for l in open('/proc/self/status') if 'CapEff' in l])"
    assert _run(become, home, [sys.executable, "-c", script]).strip() == shown


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("become", "tests"),
    [(ordinary, INSIDE + ENDINGS), (without_capabilities, INSIDE)],
    ids=["ordinary", "bare root"],
)
def test_the_attacks_fail_for_other_workers_too(become: Become, tests: list[str], home: Path) -> None:
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "tests.security.guard", "-p", "no:cacheprovider"]
    shown = _run(become, home, [*pytest_, *tests])
    assert "attacks by level" in shown
