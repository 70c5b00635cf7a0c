"""A crash bench with more to look at: a broker of the test's own, every row of a job, zombies that hold no lock."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from jobs.installation import Installation
from jobs.submit import SubmitRequest, submit
from jobs.workspace import workspace_path
from storage.engine import Database
from storage.models import metadata
from storage.runs import list_runs
from tests.crash.bench import CrashBench, sqlite_takes_a_write
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandProcess
from tests.strict_endpoint import Call, ChatRequest, Reply
from tests.strict_endpoint.endpoint import Gate
from tests.waiting import wait_until

READY = "is ready: queues"
PIECE = """
name: plain
description: One movement with every tool.
initial_movement: work
movements:
  - name: work
    edit: true
    persona: Works.
    instruction: Do the work.
    allowed_tools: ["*"]
    rules: [{condition: done, next: COMPLETE}, {condition: unsure, next: ASK}]
"""
COMPLETE = Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "all done"}),))


def bash(command: str) -> Reply:
    return Reply(calls=(Call("Bash", {"command": command}),))


def story(*replies: Reply) -> Callable[[ChatRequest], Reply]:
    """A mind that says these replies in turn to each job, whatever was interrupted in between."""
    return lambda request: replies[request.replies]


@dataclass
class Bench(CrashBench):
    """Leases are as long as in production unless a test says otherwise: only what it is about ends one."""

    broker: RedisServer
    environment: dict[str, str] = field(default_factory=dict)
    gates: list[Gate] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # jobs submitted while something was away

    def env(self, **more: str) -> dict[str, str]:
        usual = {
            "SOSTENUTO_BROKER_URL": self.broker.url,
            "SOSTENUTO_LEASE_SECONDS": "15",
            "SOSTENUTO_SLICE_STEPS": "200",
            "SOSTENUTO_GRACE_SECONDS": "0.2",
            "SOSTENUTO_CONTEXT_FINAL_SUMMARY_ENABLED": "false",  # tests/crash/test_summaries.py has them
        }
        return super().env() | usual | self.environment | more

    def start(self, *arguments: str, **env: str) -> CommandProcess:
        """A worker; returns when it takes jobs."""
        worker = self.commands(*(arguments or ("--concurrency", "4")), env=self.env(**env))
        worker.wait_for_log(READY)
        return worker

    def submit(self, instruction: str = "Do it.") -> str:
        self.write_pieces()
        return submit(self.installation, SubmitRequest(instruction, piece="plain"), "local").job.id

    def submit_to(self, broker_url: str) -> str:
        """A job whose wake-up goes to another broker."""
        self.write_pieces()
        settings = self.installation.settings.model_copy(update={"broker_url": broker_url})
        other = Installation(settings, self.installation.db)
        job_id = submit(other, SubmitRequest("Do it.", piece="plain"), "local").job.id
        other.wakeups.close()
        return job_id

    def submit_silently(self) -> str:
        """A job whose wake-up is lost."""
        return self.submit_to("redis://127.0.0.1:1/0")

    def write_pieces(self) -> None:
        self.write_piece()
        folder = self.installation.settings.pieces_dir
        assert folder is not None
        (folder / "plain.yaml").write_text(PIECE)

    def cli(self, *arguments: str) -> str:
        """A command that must succeed; returns what it printed."""
        command = self.commands.run(*arguments, env=self.env())
        assert command.wait() == 0, command.log()
        return command.log()

    def file(self, job_id: str, name: str) -> Path:
        """A file in the job's output folder."""
        return workspace_path(self.installation.settings.data_dir, job_id) / "output" / name

    def wait_file(self, job_id: str, name: str) -> Path:
        """Waits until a command of the job has made it."""
        file = self.file(job_id, name)
        wait_until(file.exists, 60, f"{file} is there")
        return file

    def runs(self, job_id: str) -> list[dict[str, Any]]:
        return list_runs(self.installation.db, job_id)

    def deaths(self, job_id: str) -> int:
        """How many of the job's runs were counted as a death."""
        return sum(run["outcome"] == "lost" for run in self.runs(job_id))

    def rows(self, job_id: str) -> dict[str, list[tuple[Any, ...]]]:
        """Everything the database holds of the job."""
        found = table_rows(self.installation.db, job_id)
        return {name: [tuple(row) for row in rows] for name, rows in found.items()}

    def holds_no_lock(self) -> bool:
        """Whether the database takes a write now; call it while every worker is stopped or dead."""
        url = self.installation.db.url
        if self.installation.db.is_sqlite:
            return sqlite_takes_a_write(str(url.database), seconds=1)
        with self.installation.db.read() as conn:
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state <> 'idle' AND backend_type = 'client backend'"
            )
            return bool(conn.execute(sa.text(waiting)).scalar_one() == 0)


def table_rows(db: Database, job_id: str) -> dict[str, list[sa.Row[Any]]]:
    """Everything the database holds of a job but its audit records, by table."""
    found: dict[str, list[sa.Row[Any]]] = {}
    with db.read() as conn:
        for table in metadata.sorted_tables:
            key = table.c.id if table.name == "jobs" else table.c.get("job_id")
            if key is not None and table.name != "audit_log":
                statement = sa.select(table).where(key == job_id).order_by(*table.primary_key)
                found[table.name] = list(conn.execute(statement))
    return found


def endless_command() -> tuple[str, str]:
    """A command that never ends by itself, and the words by which its processes are told from all others."""
    words = f"sleep 86399.{uuid.uuid4().int % 10**9:09d}"
    return words, words


def running(words: str) -> list[int]:
    """Pids of living processes whose arguments end with these words, in sandboxes as well."""
    wanted = "\0".join(words.split()).encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if arguments.rstrip(b"\0").endswith(wanted):
                found.append(int(process.name))
    return found


def job_of(request: ChatRequest) -> str:
    return request.label.partition("/")[0]
