"""The command line in this process, on a fresh SQLite installation; and a worker's writes without a worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import run
from jobs.settings import Settings
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database
from storage.records import Checkpoint, Commit, Move, NewMessage, RunRef
from storage.runs import Claim, claim_best
from storage.text import clean_text


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The JSON object of a failed command on stderr."""
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


Cli = Callable[..., Outcome]
PROGRAM = [sys.executable, "-c", "from jobs.cli import main; main()"]  # the same as a process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no settings in the environment. Nothing listens at its broker's address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOSTENUTO_BROKER_URL", f"redis+socket://{tmp_path}/no-broker")
    return tmp_path


@pytest.fixture
def cli(folder: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run one command: `cli("list", "--json")`."""

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


class Agent:
    """Writes what a worker would write, through the real stores."""

    def __init__(self, settings: Settings) -> None:
        self._db = Database(settings.database_url)
        self._runs = 0

    def claim(self, job_id: str) -> RunRef:
        self._runs += 1
        claim = Claim(
            f"run-{self._runs}", "host:1", "agent", "queued", "running", "claim", 60, allow_suspects=True
        )
        row = claim_best(self._db, claim, job_id)
        assert row is not None
        assert row["id"] == job_id
        return RunRef(claim.run_id, job_id)

    def commit(self, run: RunRef, *messages: NewMessage, move: Move | None = None, **values: Any) -> None:
        step = Checkpoint(
            Commit.END if move else Commit.REPLY,
            messages=list(messages),
            steps=1,
            prompt_tokens=100,
            move=move,
            values=values,
        )
        commit_if_run_owns(self._db, run, step)

    def succeed(self, run: RunRef, result: str) -> None:
        done = Move("succeed", ("running",), "succeeded", "completed", terminal=True)
        self.commit(run, said(result), move=done, result=clean_text(result))

    def ask(self, run: RunRef, question: str) -> None:
        move = Move("ask", ("running",), "waiting_human", "question", {"question": question})
        self.commit(
            run, said(question), move=move, pending_question={"question": question}, pending_call="c1"
        )

    def close(self) -> None:
        self._db.close()


def said(text: str, *calls: tuple[str, str, str]) -> NewMessage:
    """A reply of the model; `calls` are (id, name, arguments)."""
    made = [
        {"id": call_id, "name": name, "arguments": arguments, "raw_id": None}
        for call_id, name, arguments in calls
    ]
    return NewMessage("assistant", "assistant", text, tool_calls=made or None)


def returned(call_id: str, name: str, text: str, *, is_error: bool = False) -> NewMessage:
    """A tool's result."""
    return NewMessage("tool", "tool", text, tool_call_id=call_id, tool_name=name, is_error=is_error)


@pytest.fixture
def agent(folder: Path) -> Any:
    """A stand-in for the worker, over the same database."""
    found = Agent(Settings(data_dir=folder / "sostenuto-data"))
    yield found
    found.close()
