"""One installation for a crash test: a database, a strict endpoint with a fixed mind, and workers to kill."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.installation import Installation
from jobs.lifecycle import cancel
from jobs.settings import Settings
from jobs.states import TERMINAL
from jobs.submit import SubmitRequest, submit
from jobs.views import JobView, get_job, list_events, list_jobs, list_messages
from jobs.workspace import InputFile, workspace_path
from storage.engine import Database
from storage.records import Message
from tests.servers.workers import CommandFactory, CommandProcess
from tests.strict_endpoint import ChatRequest, Reply, StrictEndpoint
from tests.strict_endpoint.minds import Call
from tests.waiting import wait_until

PIECE = """
name: crash
description: Two movements with every kind of commit in them.
initial_movement: work
movements:
  - name: work
    edit: true
    persona: Works.
    instruction: Do the work.
    allowed_tools: ["*"]
    rules: [{condition: done, next: finish}]
  - name: finish
    persona: Ends.
    instruction: End it.
    allowed_tools: [Read]
    rules: [{condition: checked, next: COMPLETE}]
"""
APPEND = "echo done >> output/effects.txt"


def mind(request: ChatRequest) -> Reply:
    """A batch of a repeatable and an unrepeatable call; prose, which brings a nudge; on to `finish`; the end."""
    system = str(request.messages[0]["content"])
    if "Movement: finish" in system:
        return [
            Reply(calls=(Call("Read", {"path": "output/report.txt"}),)),
            Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "all done"}),)),
        ][request.replies]
    return [
        Reply(calls=(Call("Read", {"path": "input/facts.txt"}), Call("Bash", {"command": APPEND}))),
        Reply(text="I think that is all."),
        Reply(calls=(Call("Write", {"path": "output/report.txt", "content": "42"}),)),
        Reply(
            calls=(Call("transition", {"next_step": "finish", "summary": "written", "lessons": "42 it is"}),)
        ),
    ][request.replies]


@dataclass
class CrashBench:
    """Workers are real processes over `database_url` and the data folder's embedded broker."""

    installation: Installation
    endpoint: StrictEndpoint
    commands: CommandFactory

    def env(self, **more: str) -> dict[str, str]:
        """The environment of a command: short leases and slices, so that every kind of end happens quickly."""
        settings = self.installation.settings
        return {
            "SOSTENUTO_DATABASE_URL": settings.database_url,
            "SOSTENUTO_PIECES_DIR": str(settings.pieces_dir),
            "OPENAI_BASE_URL": self.endpoint.url,
            "SOSTENUTO_MODEL": "strict",
            "SOSTENUTO_LEASE_SECONDS": "3",
            "SOSTENUTO_SLICE_STEPS": "2",
            "SOSTENUTO_SWEEP_SECONDS": "0.2",
            "SOSTENUTO_GRACE_SECONDS": "5",
            "SOSTENUTO_CONTEXT_FINAL_SUMMARY_ENABLED": "false",  # tests/crash/test_summaries.py has them
            **more,
        }

    def worker(self, crash_at: str | None = None, env: Mapping[str, str] | None = None) -> CommandProcess:
        armed = {} if crash_at is None else {"SOSTENUTO_CRASH_POINT": crash_at}
        return self.commands("--concurrency", "4", env={**self.env(**armed), **(env or {})})

    def submit(self, instruction: str = "Do it.") -> str:
        """A job with one input file, submitted by the Python API; nobody needs to be listening."""
        self.write_piece()
        files = [InputFile("facts.txt", b"six times seven\n")]
        return submit(
            self.installation, SubmitRequest(instruction, piece="crash", files=files), "local"
        ).job.id

    def write_piece(self) -> None:
        folder = self.installation.settings.pieces_dir
        assert folder is not None
        folder.mkdir(exist_ok=True)
        (folder / "crash.yaml").write_text(PIECE)

    def job_ids(self) -> list[str]:
        return [view.id for view in list_jobs(self.installation, None)]

    def view(self, job_id: str) -> JobView:
        return get_job(self.installation, job_id, None)

    def wait_ended(self, job_id: str, timeout: float = 120) -> JobView:
        wait_until(lambda: self.view(job_id).state in TERMINAL, timeout, f"job {job_id} ends")
        return self.view(job_id)

    def messages(self, job_id: str) -> list[Message]:
        return list_messages(self.installation, job_id)

    def effects(self, job_id: str) -> int:
        """How often the unrepeatable command took effect."""
        file = workspace_path(self.installation.settings.data_dir, job_id) / "output" / "effects.txt"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def assert_sound(self, job_id: str) -> None:
        """What holds of every finished job, whatever happened to its workers."""
        messages = self.messages(job_id)
        assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
        events = list_events(self.installation, job_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        view = self.view(job_id)
        assert view.total_messages == len(messages)
        assert view.steps == sum(message.role == "assistant" for message in messages)
        called = [call["id"] for message in messages for call in message.tool_calls or ()]
        answered = [message.tool_call_id for message in messages if message.role == "tool"]
        assert sorted(answered, key=str) == sorted(called, key=str)

    def frozen_context_worker(
        self, point: str, begin: Callable[[], str], env: Mapping[str, str]
    ) -> tuple[CommandProcess, str]:
        """A worker of the context queue that has stopped itself there, and the job that `begin` began.

        A process that is stopped inside a transaction blocks SQLite for everybody, as docs/crash-safety.md says. That is
        not what these tests are about: then it is tried again.
        """
        calm = {"SOSTENUTO_SWEEP_SECONDS": "3600", "SOSTENUTO_CRASH_POINT": f"{point}:stop"}
        database = self.installation.db.url.database if self.installation.db.is_sqlite else None
        for _ in range(6):
            job_id = begin()
            frozen = self.commands(
                "--queues", "context", "--concurrency", "2", env=self.env(**{**env, **calm})
            )
            wait_until(lambda: is_stopped(frozen.pid), 120, "it lies still")  # noqa: B023 - called at once
            if database is None or sqlite_takes_a_write(database, seconds=10):
                return frozen, job_id
            frozen.kill()
            if self.view(job_id).state not in TERMINAL:
                cancel(self.installation, job_id, None, "test")
        raise AssertionError("it always stopped inside a transaction")


def is_stopped(pid: int) -> bool:
    """Whether the process lies still after a SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def sqlite_takes_a_write(file: str, seconds: float) -> bool:
    """Whether nobody holds the file's write lock for so long."""
    connection = sqlite3.connect(file, timeout=seconds, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def shape(messages: list[Message]) -> list[tuple[str, str | None, str]]:
    """A transcript without what differs from run to run: ids, times."""
    return [(message.kind, message.tool_name, _told(message)) for message in messages]


def _told(message: Message) -> str:
    if message.tool_calls:
        return "; ".join(f"{call['name']} {call['arguments']}" for call in message.tool_calls)
    if message.extra and message.extra.get("block") in ("time", "files"):
        return ""  # the hour, and the files that an interrupted command may or may not have made
    return message.content or ""


def died_by_kill(command: CommandProcess) -> None:
    """The process, started by the public command, was killed by SIGKILL at its crash point."""
    wait_until(lambda: command.returncode is not None, 60, "the armed process dies at its crash point")
    assert command.returncode == -signal.SIGKILL, command.log()


def make_installation(database_url: str, data_dir: Path, broker_url: str | None = None) -> Installation:
    settings = Settings(
        database_url=database_url, data_dir=data_dir, pieces_dir=data_dir / "pieces", broker_url=broker_url
    )
    return Installation(settings, Database(database_url))
