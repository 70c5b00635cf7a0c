"""A stage for the agent: submitters on one side, a worker process without Celery on the other, a mind that answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa

from jobs import comments, lifecycle, submit, views
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.settings import Settings
from jobs.views import JobView
from jobs.workspace import InputFile, workspace_path
from storage import jobs as job_store
from storage import transcript
from storage.engine import Database, wall_clock
from storage.models import jobs, runs, tool_calls
from storage.records import Comment, Message
from storage.runs import list_runs
from tests.strict_endpoint import Answer, Call, ChatRequest, Reply, StrictEndpoint
from worker.heartbeat import Control
from worker.process import WorkerProcess
from worker.sandbox.base import Sandbox
from worker.slices import run_slice
from worker.sweep import sweep_once
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.catalogue import Catalogue, standard_tools

Line = Answer | Callable[[ChatRequest], Answer]
OWNER = "local"
MODEL = "test-model"


def call(name: str, /, **arguments: Any) -> Call:
    return Call(name, arguments)


def calls(*wanted: Call) -> Reply:
    return Reply(calls=wanted)


def go(next_step: str, summary: str = "done", **more: Any) -> Reply:
    """A reply whose one call is a transition."""
    return calls(call("transition", next_step=next_step, summary=summary, **more))


COMPLETE = go("COMPLETE", "all is done")


class Tale:
    """A mind that says its lines in order, whoever asks; more calls than lines are a violation."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        self.said = 0

    def __call__(self, request: ChatRequest) -> Answer:
        assert self.said < len(self.lines), f"call {self.said + 1} was not expected"
        line = self.lines[self.said]
        self.said += 1
        return line(request) if callable(line) else line


@dataclass
class Act:
    """A tool whose every run is kept and may do something: `effect` is called in the agent's thread."""

    name: str = "Act"
    crash: CrashPolicy = CrashPolicy.UNKNOWN_AFTER_CRASH
    effect: Callable[[ToolContext, dict[str, Any]], str | None] | None = None
    edits: bool = False
    description: str = "Acts."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }

    def __post_init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.budgets: list[int] = []

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        self.runs.append(arguments)
        self.budgets.append(context.budget_tokens)
        said = self.effect(context, arguments) if self.effect else None
        return ToolResult(said if said is not None else f"acted {arguments.get('n', '')}")


class PowerCut(BaseException):
    """Ends a run as a dying process does: nothing of Sostenuto handles it, nothing more is written."""


class Stage:
    """One installation, seen from both sides. The submitters' side has a database object of its own."""

    def __init__(self, url: str, folder: Path, endpoint: StrictEndpoint, sandbox: Sandbox | None) -> None:
        self.endpoint = endpoint
        self.sandbox = sandbox
        self.folder = folder
        self.changes: dict[str, Any] = {}
        self.acts = [Act("Act"), Act("Again", CrashPolicy.REPEATABLE)]
        self.busy_calls: list[int] = []  # connections in use while the model was thinking
        self._url = url
        self._opened: list[Installation] = []
        self.doors = self._open()
        self.process = self.new_process()

    # --- the submitters' side ---

    def submit(self, instruction: str = "Do it.", piece: str | None = None, **more: Any) -> str:
        files = tuple(InputFile(name, data) for name, data in more.pop("files", {}).items())
        budget = Budget(**more.pop("budget", {}))
        request = submit.SubmitRequest(instruction, piece=piece, files=files, budget=budget, **more)
        return submit.submit(self.doors, request, OWNER).job.id

    def piece(self, name: str, *movements: dict[str, Any], **more: Any) -> str:
        """Writes a piece into the user's folder; movements have persona, instruction and tools filled in."""
        filled = [
            {"persona": f"You are {m['name']}.", "instruction": f"Do {m['name']}.", "allowed_tools": ["*"]}
            | m
            for m in movements
        ]
        data = {"name": name, "description": "a piece", "initial_movement": filled[0]["name"]} | more
        folder = self.folder / "pieces"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(json.dumps(data | {"movements": filled}))
        return name

    def comment(self, job_id: str, text: str, author: str = "ann") -> Comment:
        return comments.add_comment(self.doors, job_id, OWNER, text, author)

    def reply(self, job_id: str, text: str, author: str = "ann") -> Comment:
        return comments.reply(self.doors, job_id, OWNER, text, author)

    def pause(self, job_id: str) -> JobView:
        return lifecycle.pause(self.doors, job_id, OWNER, "ann")

    def resume(self, job_id: str, **budget: Any) -> JobView:
        return lifecycle.resume(self.doors, job_id, OWNER, "ann", Budget(**budget))

    def cancel(self, job_id: str) -> JobView:
        return lifecycle.cancel(self.doors, job_id, OWNER, "ann")

    def retry(self, job_id: str) -> JobView:
        return lifecycle.retry(self.doors, job_id, OWNER, "ann", None)

    def job(self, job_id: str) -> JobView:
        return views.get_job(self.doors, job_id, OWNER)

    def row(self, job_id: str) -> dict[str, Any]:
        return job_store.get_job(self.doors.db, job_id)

    def messages(self, job_id: str) -> list[Message]:
        return transcript.list_messages(self.doors.db, job_id)

    def results(self, job_id: str) -> list[str]:
        return [m.content or "" for m in self.messages(job_id) if m.role == "tool"]

    def gaps(self, job_id: str) -> list[str]:
        return [m.content or "" for m in self.messages(job_id) if m.kind == "gap"]

    def events(self, job_id: str, kind: str) -> list[dict[str, Any]]:
        return [e.data or {} for e in job_store.list_events_of_kind(self.doors.db, job_id, kind)]

    def runs(self, job_id: str) -> list[dict[str, Any]]:
        return list_runs(self.doors.db, job_id)

    def call_states(self, job_id: str) -> list[str]:
        statement = (
            sa.select(tool_calls.c.state)
            .where(tool_calls.c.job_id == job_id)
            .order_by(tool_calls.c.message_seq, tool_calls.c.position)
        )
        with self.doors.db.read() as conn:
            return list(conn.execute(statement).scalars())

    def workspace(self, job_id: str) -> Path:
        return workspace_path(self.folder, job_id)

    def make_due(self, job_id: str) -> None:
        """Lets the time of a backoff or a schedule pass."""
        with self.doors.db.write() as conn:
            conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(available_at=wall_clock()))

    # --- the workers' side ---

    def new_process(self, name: str = "worker-1", **changes: Any) -> WorkerProcess:
        """A worker process as after a restart: nothing in memory of the one before."""
        self.changes |= changes
        process = WorkerProcess(self._open(), name, ["agent", "context"], self.sandbox)
        process.catalogue = Catalogue([*standard_tools(), *self.acts])
        return process

    def restart(self, **changes: Any) -> None:
        self.process = self.new_process(f"worker-{len(self._opened)}", **changes)

    def reopen(self, **changes: Any) -> None:
        """Other settings on both sides: the submitters' doors are opened anew, too."""
        self.changes |= changes
        self.doors = self._open()
        self.restart()

    def tell(self, *lines: Line) -> Tale:
        """What the model says next; every call also notes whether a database connection was held meanwhile."""
        tale = Tale(lines)

        def mind(request: ChatRequest) -> Answer:
            self.busy_calls.append(self.process.db.busy_connections)
            return tale(request)

        self.endpoint.mind = mind
        return tale

    def run(self) -> str | None:
        return run_slice(self.process, None)

    def play(self, *lines: Line, **submitted: Any) -> str:
        """Submits a job, runs one slice of it with these lines, and returns its id."""
        self.tell(*lines)
        job_id = self.submit(**submitted)
        assert self.run() == job_id
        return job_id

    @contextmanager
    def running(self) -> Iterator[None]:
        """A slice in a thread of its own, from the block's beginning; ended at the block's end."""
        thread = threading.Thread(target=self.run, name="a-slice")
        thread.start()
        yield
        thread.join(60)
        assert not thread.is_alive(), "the slice did not end"

    def look(self) -> None:
        """What the control thread does every half second."""
        Control(self.process).look()

    def crash(self) -> None:
        """A slice that dies at a PowerCut; afterwards its lease is over, but nobody has noticed yet."""
        try:
            self.run()
        except PowerCut:
            pass
        else:
            raise AssertionError("the run did not die")
        self.expire()

    def expire(self) -> None:
        """Lets the time of every lease pass."""
        expired = sa.update(runs).where(runs.c.ended_at.is_(None)).values(lease_expires_at=wall_clock() - 1)
        with self.doors.db.write() as conn:
            conn.execute(expired)

    def sweep(self) -> None:
        sweep_once(self.process)

    # --- the end ---

    def close(self) -> None:
        for installation in self._opened:
            installation.close()

    def _open(self) -> Installation:
        settings = Settings.model_validate(
            {
                "data_dir": self.folder,
                "database_url": self._url,
                "broker_url": f"redis+socket://{self.folder}/no-broker",
                "time_zone": "UTC",
                "model": MODEL,
                "openai_base_url": self.endpoint.url,
            }
            | self.changes
        )
        installation = Installation(settings, Database(self._url))
        self._opened.append(installation)
        return installation
