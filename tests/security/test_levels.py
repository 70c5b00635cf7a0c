"""Real worker processes on machines that lack a level: never a weaker one than was asked for, and none only with a banner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import registry
from tests.resilience.bench import COMPLETE, READY, Bench, bash, story
from tests.resilience.conftest import sqlite_bench
from tests.servers.session import ServerSession
from tests.waiting import wait_until

__all__ = ["sqlite_bench"]

_WORKER = "import sys; from worker.__main__ import main; sys.exit(main(['--concurrency', '1']))"
WITHOUT_BWRAP = "import worker.sandbox.bwrap as b; b.find_bwrap = lambda: None; "
WITHOUT_BOTH = WITHOUT_BWRAP + "import worker.sandbox.landlock as l; l.landlock_abi = lambda: 0; "

Start = Callable[..., tuple["subprocess.Popen[bytes]", Path]]


@pytest.fixture
def start(sqlite_bench: Bench, server_session: ServerSession, data_dir: Path, tmp_path: Path) -> Start:
    """A worker process in which the machine lacks something."""

    def begin(lacks: str, **env: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / "worker.log"
        whole = os.environ | sqlite_bench.env(SOSTENUTO_DATA_DIR=str(data_dir), **env)
        command = [sys.executable, "-P", "-c", lacks + _WORKER]
        return server_session.spawn(command, log, env=whole, submark=data_dir.name), log

    return begin


def _job_says(bench: Bench) -> str:
    bench.endpoint.mind = story(bash("echo ran"), COMPLETE)
    job_id = bench.submit()
    bench.wait_ended(job_id)
    return next(message.content or "" for message in bench.messages(job_id) if message.role == "tool")


def test_a_worker_below_the_demanded_level_does_not_start(start: Start) -> None:
    worker, log = start(WITHOUT_BWRAP, SOSTENUTO_SANDBOX_MIN="bwrap", SOSTENUTO_ALLOW_UNSANDBOXED="1")
    assert worker.wait(60) != 0
    told = log.read_text()
    assert "no sandbox of level bwrap or better works here (there is no bwrap program)" in told
    assert READY not in told


def test_without_any_level_bash_is_refused_and_all_else_works(start: Start, sqlite_bench: Bench) -> None:
    _, log = start(WITHOUT_BOTH)
    told = _job_says(sqlite_bench)
    assert told.startswith("Error: ")
    assert "sandbox" in told
    assert "Bash is refused" in log.read_text()
    assert "UNSANDBOXED:" not in log.read_text()
    [worker] = registry.live_workers(sqlite_bench.installation.db, 60)
    assert worker["sandbox"] == "none: Bash is refused"


def test_none_at_all_is_shown_with_a_banner(start: Start, sqlite_bench: Bench) -> None:
    _, log = start(WITHOUT_BOTH, SOSTENUTO_ALLOW_UNSANDBOXED="1")
    assert _job_says(sqlite_bench).strip() == "ran"
    wait_until(
        lambda: "UNSANDBOXED: what models say is run with all rights" in log.read_text(), 30, "a banner"
    )
    [worker] = registry.live_workers(sqlite_bench.installation.db, 60)
    assert "UNSANDBOXED" in worker["sandbox"]
