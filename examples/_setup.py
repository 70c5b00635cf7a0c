"""What the examples share: an installation in a temporary folder, and a worker. Your program needs neither.

A program of yours calls `open_installation(load_settings())`: the settings come from its environment and from
`sostenuto.yaml`, and the workers run elsewhere (`sostenuto up`, or `sostenuto worker` on other machines).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from jobs.installation import Installation, open_installation
from jobs.settings_sources import load_settings
from jobs.views import get_job

T = TypeVar("T")


@contextmanager
def installation(script: str) -> Iterator[Installation]:
    """An empty one in a temporary folder, whose model answers from a script instead of an endpoint."""
    with tempfile.TemporaryDirectory(prefix="sostenuto-example-") as folder:
        path = Path(folder, "script.yaml")
        path.write_text(script)
        os.environ["SOSTENUTO_DATA_DIR"] = folder
        os.environ["SOSTENUTO_MODEL"] = f"scripted:{path}"
        os.environ["SOSTENUTO_LEASE_SECONDS"] = "3"  # short: the third example waits for one to end
        with open_installation(load_settings()) as opened:
            yield opened


@contextmanager
def worker(name: str = "worker") -> Iterator[subprocess.Popen[bytes]]:
    """A real worker process, as `sostenuto worker` runs it, stopped in order at the end of the block."""
    command = [sys.executable, "-P", "-m", "worker", "--name", name, "--log-level", "error"]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_until(condition: Callable[[], T], seconds: float = 60) -> T:
    """Look again and again until it is so. A program that serves people would rather answer them meanwhile."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it took too long; look at what the worker printed")
        time.sleep(0.1)
    return found


def wait_for_state(opened: Installation, job_id: str, *states: str) -> None:
    """Wait until the job is in one of these states."""
    wait_until(lambda: get_job(opened, job_id, owner="local").state in states)
