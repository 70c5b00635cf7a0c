"""`sostenuto up` as a process over a data folder of the test's own, with a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from tests.servers.processes import process_tree
from tests.servers.workers import CommandFactory, CommandProcess
from tests.waiting import wait_until

SCRIPT = """\
movements:
  work:
    - delay: {delay}
      transition: {{next_step: COMPLETE, summary: done}}
"""


class UpFactory:
    """Starts `sostenuto up`; what the test needs to know of it."""

    def __init__(self, commands: CommandFactory, data_dir: Path) -> None:
        self._commands = commands
        self.data_dir = data_dir
        self.settings = Settings(data_dir=data_dir, grace_seconds=1)
        self._script = data_dir.parent / f"{data_dir.name}.script.yaml"
        self.answer_after(0)

    def answer_after(self, delay: float) -> None:
        """How long the model takes, for the workers that start from now on."""
        self._script.write_text(SCRIPT.format(delay=delay))

    def start(self, *arguments: str, **env: str) -> CommandProcess:
        """Without the web server, unless `--port` asks for it."""
        if "--port" not in arguments:
            arguments = (*arguments, "--no-web")
        environment = {"SOSTENUTO_MODEL": f"scripted:{self._script}", "SOSTENUTO_GRACE_SECONDS": "1", **env}
        return self._commands.run("up", *arguments, env=environment)

    def started(self, *arguments: str, **env: str) -> CommandProcess:
        """One that is up."""
        command = self.start(*arguments, **env)
        command.wait_for_log("  up: ")
        return command

    def workers(self) -> list[int]:
        """The pids in its record."""
        return [int(worker["pid"]) for worker in self.record()["workers"]]

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data_dir / "run" / "up.json").read_text())
        return found


@pytest.fixture
def up(worker_process: CommandFactory, data_dir: Path) -> UpFactory:
    return UpFactory(worker_process, data_dir)


@pytest.fixture
def installation(up: UpFactory) -> Iterator[Installation]:
    """The same data folder from outside."""
    with open_installation(up.settings) as opened:
        yield opened


def submitted(installation: Installation) -> str:
    return submit(installation, SubmitRequest("Do it."), "local").job.id


def wait_for_state(installation: Installation, job_id: str, state: str) -> None:
    wait_until(lambda: get_job(installation, job_id, None).state == state, 60, f"job is {state}")


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in {"Z", "X"}


def wait_for_end(pids: list[int]) -> None:
    wait_until(lambda: not any(alive(pid) for pid in pids), 60, f"the end of {pids}")


def family(command: CommandProcess) -> list[int]:
    """The command and all that it started, its broker included."""
    return process_tree(command.pid)
