"""Tools of packages that pip installed, in real worker processes; and what a kill in the middle of a call leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.states import State
from storage import registry
from tests.hook_example import EXAMPLES
from tests.resilience.bench import COMPLETE, Bench, story
from tests.resilience.conftest import sqlite_bench
from tests.strict_endpoint import Call, Reply

__all__ = ["sqlite_bench"]

_TOOLS = """
import os, signal
from worker.plugins import PluginTool, Risk
from worker.tools.base import CrashPolicy

def tool(name, crash):
    def act(call, arguments):
        effects = call.workspace / "output" / "effects"
        with effects.open("a") as file:
            file.write(call.call_id + "\\n")
        if len(effects.read_text().splitlines()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "acted"
    return PluginTool(name, "Acts once.", {"type": "object", "properties": {}}, act, Risk.EXECUTE, crash)

TOOLS = [tool("act_again", CrashPolicy.REPEATABLE), tool("act_once", CrashPolicy.UNKNOWN_AFTER_CRASH)]
"""
_PROJECT = """
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"
[project]
name = "deadly-tools"
version = "1"
[project.entry-points."sostenuto.tools"]
deadly = "deadly_tools:TOOLS"
[tool.setuptools]
py-modules = ["deadly_tools"]
"""


def pip_install(package: Path, target: Path, scratch: Path) -> str:
    """Installs a package from its sources as an operator would, with nothing from the network; returns PYTHONPATH."""
    sources = scratch / "sources"
    subprocess.run(["cp", "-r", package, sources], check=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    ran = subprocess.run([*command, "--target", target, sources], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(target)


def call(name: str, **arguments: str) -> Reply:
    return Reply(calls=(Call(name, arguments),))


def test_the_example_package_works_in_a_worker(sqlite_bench: Bench, tmp_path: Path) -> None:
    bench = sqlite_bench
    bench.environment["PYTHONPATH"] = pip_install(EXAMPLES / "tool_package", tmp_path / "site", tmp_path)
    bench.endpoint.mind = story(
        call("Write", path="output/a.txt", content="one two\nthree\n"),
        call("word_count", path="output/a.txt"),
        call("word_count", path="../../../etc/passwd"),
        COMPLETE,
    )
    bench.start()
    job_id = bench.submit()
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    told = [message.content or "" for message in bench.messages(job_id) if message.role == "tool"]
    assert told[1] == "2 lines, 3 words"
    assert "contains '..'" in told[2]
    [worker] = registry.live_workers(bench.installation.db, 60)
    assert "word_count" in worker["tools"]


@pytest.mark.parametrize(
    ("tool", "effects", "told"), [("act_again", 2, "acted"), ("act_once", 1, "Interrupted")]
)
def test_a_worker_killed_during_a_call(
    sqlite_bench: Bench, tmp_path: Path, tool: str, effects: int, told: str
) -> None:
    """By the tool itself, after its effect: the next worker repeats what was declared repeatable, with the same call id,
    and asks for a look at everything else."""
    bench = sqlite_bench
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(_PROJECT)
    (package / "deadly_tools.py").write_text(_TOOLS)
    bench.environment |= {
        "PYTHONPATH": pip_install(package, tmp_path / "site", tmp_path),
        "SOSTENUTO_LEASE_SECONDS": "3",
        "SOSTENUTO_SWEEP_SECONDS": "0.2",
    }
    bench.endpoint.mind = story(call(tool), COMPLETE)
    first = bench.start()
    job_id = bench.submit()
    assert first.wait() == -9
    bench.start()
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    lines = bench.file(job_id, "effects").read_text().splitlines()
    assert len(lines) == effects
    assert len(set(lines)) == 1
    [result] = [message.content or "" for message in bench.messages(job_id) if message.tool_name == tool]
    assert told in result
    assert bench.deaths(job_id) == 1
