"""Runs pieces as a user does: the `sostenuto` command, a real worker, real tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.workspace import workspace_path
from tests.servers.workers import CommandFactory

CALC = "def mean(values):\n    return sum(values) / len(values)\n"
TESTS = """\
import unittest

from calc import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 3]), 2)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A job that has ended, as the command line and its workspace show it."""

    job: dict[str, Any]
    notes: dict[str, Any]
    workspace: Path
    visits: list[str]
    errors: list[str]

    def text(self, path: str) -> str:
        return (self.workspace / path).read_text()


class Runner:
    """One worker and the commands of its user."""

    def __init__(
        self, commands: CommandFactory, data_dir: Path, files: Path, env: Mapping[str, str], patience: float
    ) -> None:
        self._commands = commands
        self._data_dir = data_dir
        self._files = files
        self._patience = patience
        worker = commands(env={"SOSTENUTO_ALLOW_UNSANDBOXED": "true", **env})
        worker.wait_for_log("is ready: queues")

    def run(
        self,
        piece: str,
        instruction: str,
        files: Mapping[str, str],
        options: Sequence[str] = (),
        reply: str | None = None,
    ) -> Run:
        """Submits a job, answers its first question with `reply`, and waits until it has succeeded."""
        given = list(options)
        for name, text in files.items():
            (self._files / name).write_text(text)
            given += ["--file", str(self._files / name)]
        job_id = self._command("submit", instruction, "--piece", piece, *given).strip()
        if reply is not None:
            self._command("watch", job_id)
            assert self._read("show", job_id)["state"] == "waiting_human"
            self._command("reply", job_id, reply)
        self._command("watch", job_id, "--exit-status")
        messages = self._read("transcript", job_id, "--full")["messages"]
        return Run(
            self._read("show", job_id),
            self._read("notes", job_id),
            workspace_path(self._data_dir, job_id),
            [row["extra"]["movement"] for row in messages if row["role"] == "system"],
            [row["content"] for row in messages if row["is_error"]],
        )

    def _read(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._command(*arguments, "--json"))
        return found

    def _command(self, *arguments: str) -> str:
        process = self._commands.run(*arguments)
        assert process.wait(self._patience) == 0, process.log()
        return process.log()
