"""What a command may use."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.conftest import LEVELS, make_shell
from tests.tools.helpers import call, make_context
from worker.sandbox.base import Caps, Ending, Outcome
from worker.sandbox.toolchain import python_program


@pytest.fixture(params=list(LEVELS))
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_one_process_cannot_take_more_memory(level: str, tmp_path: Path) -> None:
    shell = make_shell(level, tmp_path, Caps(memory_bytes=100 << 20))
    assert shell(f"{python_program()} -c 'x = bytearray(300 << 20); print(\"got it\")'").exit_code == 1
    assert b"MemoryError" in shell.printed


def test_many_processes_cannot_take_more_memory_together(level: str, tmp_path: Path) -> None:
    shell = make_shell(level, tmp_path, Caps(memory_bytes=100 << 20))
    eater = f"{python_program()} -c 'import time; x = bytearray(60 << 20); time.sleep(60)' &"
    assert shell(eater * 4 + "wait") == Outcome(Ending.MEMORY)


def test_a_file_cannot_grow_further(level: str, tmp_path: Path) -> None:
    shell = make_shell(level, tmp_path, Caps(file_bytes=1 << 20))
    assert shell("head -c 3000000 /dev/zero > output/f").exit_code != 0
    assert (shell.workspace / "output/f").stat().st_size == 1 << 20


def test_the_workspace_cannot_grow_further(level: str, tmp_path: Path) -> None:
    shell = make_shell(level, tmp_path, Caps(workspace_bytes=10 << 20, workspace_files=50))
    fill = "for i in $(seq 12); do head -c 1000000 /dev/zero > output/$1$i; done; sleep 60"
    assert shell(fill) == Outcome(Ending.DISK)
    assert shell("rm -r output/*; sleep 1").exit_code == 0
    assert shell("touch output/{1..100}; sleep 60") == Outcome(Ending.DISK)


def test_open_files_and_core_dumps_are_limited(level: str, tmp_path: Path) -> None:
    shell = make_shell(level, tmp_path, Caps(open_files=64))
    assert shell.says("ulimit -n; ulimit -c") == "64\n0"


def test_temporary_space_is_limited(tmp_path: Path) -> None:
    shell = make_shell("bwrap", tmp_path, Caps(tmp_bytes=1 << 20))
    for folder in ("/tmp", "/dev/shm"):
        assert shell(f"head -c 3000000 /dev/zero > {folder}/f").exit_code != 0
        assert int(shell.says(f"df --output=size -B1 {folder} | tail -1")) == 1 << 20
    assert shell("touch /dev/f /f /etc/f").exit_code != 0


def test_memory_stays_constant_whatever_is_printed(level: str, tmp_path: Path) -> None:
    """1 GB of output."""
    shell = make_shell(level, tmp_path)
    # A busy machine takes its time for a gigabyte: the command's own timeout must not be what ends it.
    context = replace(make_context(shell.workspace, budget=1000, sandbox=shell.sandbox), bash_timeout=170)
    call(context, "Bash", command="head -c 10000000 /dev/zero | tr '\\0' x")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = call(context, "Bash", command="echo first; yes | head -c 1000000000; echo last")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10  # KiB
    assert result.content.startswith("first\ny\n")
    assert result.content.endswith("last")
    assert " bytes are left out here" in result.content
