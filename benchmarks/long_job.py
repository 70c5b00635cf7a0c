"""`python -m benchmarks.long_job`: one job of 5,000 steps and 40 compactions, told in tenths of its steps.

The worker's code and the storage are real: slices, runs of the context queue, each hand-over between them. The model is a
mind in this process that takes no time (`benchmarks.long_story`); what its calls cost is not counted. Times are CPU time of the
worker's thread, so that a busy machine does not change them; the database server's own is not in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.database_work import DatabaseWork
from benchmarks.long_story import WORK, LongStory, result_of_work
from jobs.comments import add_comment
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from storage.engine import Database
from storage.jobs import get_job as get_row
from storage.migrate import upgrade
from worker.cancel import CancelToken
from worker.context_run import run_context
from worker.model.types import ModelReply, ModelRequest, ToolCall, Usage
from worker.process import WorkerProcess
from worker.slices import run_slice
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.catalogue import Catalogue, standard_tools

STEPS, FACTS = 5_000, 60
WINDOW, LONGEST_REPLY = 32_000, 2_000
RESULT_TOKENS = 190
OWNER = "bench"
PIECE = {
    "name": "ledger",
    "description": "One long movement.",
    "initial_movement": "work",
    "movements": [
        {
            "name": "work",
            "persona": "You keep a ledger.",
            "instruction": "Go through it entry by entry.",
            "allowed_tools": [WORK, "todo_write", "plan"],
            "rules": [{"condition": "done", "next": "COMPLETE"}],
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Work:
    """The tool of a working step."""

    name: str = WORK
    description: str = "Reads one entry of the ledger."
    parameters: dict[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 - the interface
        return ToolResult(result_of_work(arguments["n"], RESULT_TOKENS))


@dataclass
class Step:
    """One step's own cost, from the end of a model call to the beginning of the next one of the agent."""

    cpu_ms: float
    tokens: int
    is_look_up: bool = False


class Meter:
    """Takes the place of the model's endpoint: answers, and notes what was spent between two answers."""

    def __init__(self, story: LongStory, work: DatabaseWork) -> None:
        self.steps: list[Step] = []
        self.work_at = [work.so_far()]  # the database's count before and after each tenth of the steps
        self.tenth = (
            story.exam_at - 1
        ) // 10  # its steps: the exam at the end, all look-ups, is another matter
        self._story = story
        self._work = work
        self._spent = 0.0  # CPU seconds since the last step's reply, without summaries' calls
        self._left = time.thread_time()
        self._looking_up = False

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:  # noqa: ARG002 - the interface
        self._spent += time.thread_time() - self._left
        is_step = request.step is not None
        if is_step:
            self.steps.append(Step(self._spent * 1000, request.expected_tokens, self._looking_up))
            self._spent = 0.0
            if len(self.steps) % self.tenth == 0 and len(self.work_at) <= 10:
                self.work_at.append(self._work.so_far())
        said = self._story.answer(request.label, request.messages)
        if is_step:
            self._looking_up = any(name == "recall" for name, _ in said.calls)
        calls = tuple(
            ToolCall(f"call_{uuid.uuid4().hex[:24]}", name, json.dumps(given)) for name, given in said.calls
        )
        reply = ModelReply(
            said.text, calls, "tool_calls" if calls else "stop", Usage(None, None), request.model
        )
        self._left = time.thread_time()
        return reply


@dataclass
class Outcome:
    """What the job came to."""

    database: str
    story: LongStory
    meter: Meter
    row: dict[str, Any]
    work_unit: str
    megabytes: float
    seconds: float


def run_long_job(folder: Path, url: str, steps: int, facts: int) -> Outcome:
    """Runs the job to its end. `url` is of an empty database; default: a SQLite file in `folder`."""
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "database_url": url,
            "model": "mind",
            "context_window": WINDOW,
            "max_output_tokens": LONGEST_REPLY,
            "exchanges": {"keep_days": 0},
            "context": {"final_summary": {"enabled": False}},
            "broker_url": f"redis+socket://{folder}/no-broker",
        }
    )
    database = Database(settings.database_url)
    upgrade(database)
    database.close()
    assert settings.pieces_dir is not None
    settings.pieces_dir.mkdir(parents=True)
    (settings.pieces_dir / "ledger.yaml").write_text(json.dumps(PIECE))
    with open_installation(settings) as installation, _doors(settings) as doors:
        ids: list[str] = []
        story = LongStory(steps, facts, lambda text: _comment(doors, ids[0], text))
        ids.append(submit(doors, SubmitRequest(story.instruction, piece="ledger"), OWNER).job.id)
        process = WorkerProcess(installation, "bench@localhost", ["agent", "context"], None)
        process.catalogue = Catalogue([*standard_tools(), Work()])
        work = DatabaseWork(installation.db)
        meter = Meter(story, work)
        process.models.complete = meter.complete  # type: ignore[method-assign]  # the model takes no time
        began = time.monotonic()
        _drive(process, doors, ids[0])
        return Outcome(
            installation.db.url.get_backend_name(), story, meter, get_row(doors.db, ids[0]), work.unit,
            _megabytes(installation.db), time.monotonic() - began,
        )  # fmt: skip


@contextmanager
def _doors(settings: Settings) -> Iterator[Installation]:
    """The submitters' side, with connections of its own."""
    installation = Installation(settings, Database(settings.database_url))
    try:
        yield installation
    finally:
        installation.close()


def _comment(doors: Installation, job_id: str, text: str) -> None:
    add_comment(doors, job_id, OWNER, text, "ann")


def _drive(process: WorkerProcess, doors: Installation, job_id: str) -> None:
    """A worker of both queues that is told at once of everything that is due."""
    queues = {"queued": run_slice, "compressing": run_context}
    while (state := get_job(doors, job_id, OWNER).state) in queues:
        queues[state](process, job_id)
    assert state == "succeeded", f"the job is {state}"


def _megabytes(db: Database) -> float:
    with db.read() as conn:
        if db.is_sqlite:
            pages = conn.execute(sa.text("PRAGMA page_count")).scalar_one()
            return float(pages * conn.execute(sa.text("PRAGMA page_size")).scalar_one()) / 1e6
        return float(conn.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()) / 1e6


def table(outcome: Outcome) -> list[str]:
    """The outcome as lines of text."""
    exam, row, meter = outcome.story.exam, outcome.row, outcome.meter
    totals = f"{row['steps']} steps, {row['total_messages']} messages, {row['total_summaries']} compactions"
    lines = [
        f"{outcome.database}: {totals}, {outcome.megabytes:.1f} MB, {outcome.seconds:.0f} s",
        f"facts: {len(exam.live)} live, {len(exam.looked_up)} by one look-up, {len(exam.lost)} lost",
        "",
        f"| tenth | median step, CPU ms | mean, CPU ms | {outcome.work_unit} a step | median context, tokens |",
        "|---|---|---|---|---|",
    ]
    for tenth in range(10):
        part = meter.steps[tenth * meter.tenth : (tenth + 1) * meter.tenth]
        own = [step.cpu_ms for step in part]
        done = (meter.work_at[tenth + 1] - meter.work_at[tenth]) / meter.tenth
        lines.append(
            f"| {tenth + 1} | {statistics.median(own):.2f} | {statistics.mean(own):.2f} | {done:.1f} | "
            f"{statistics.median(step.tokens for step in part):,.0f} |"
        )
    if looked_up := [step.cpu_ms for step in meter.steps if step.is_look_up]:
        lines += [
            "",
            f"a step with a look-up: {statistics.median(looked_up):.1f} ms of CPU (median of {len(looked_up)})",
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_job", description=__doc__)
    parser.add_argument(
        "--database", default="", help="URL of an empty Postgres database; default: a SQLite file"
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--facts", type=int, default=FACTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sostenuto-long-") as folder:
        outcome = run_long_job(Path(folder), given.database, given.steps, given.facts)
    for line in table(outcome):
        print(line)
    return 1 if outcome.story.exam.lost else 0


if __name__ == "__main__":
    sys.exit(main())
