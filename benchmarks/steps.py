"""The system's own cost of a step: a model call that takes no time, one tool call that does nothing, their two commits."""

from __future__ import annotations

import itertools
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.bench import NAMES, Bench
from benchmarks.figures import Figure, Table, Target, compared
from benchmarks.floors import postgres_floor, sqlite_floor
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from storage.models import jobs, messages, tool_calls
from storage.records import RunRef
from worker.cancel import CancelToken
from worker.model.types import ModelReply, ModelRequest, ToolCall, Usage
from worker.process import WorkerProcess
from worker.slices import run_slice
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.catalogue import Catalogue

LIMIT_MS = {"sqlite": 1.5, "postgres": 3.0}
GROWTH = 1.2  # at 10,000 messages, beside 100


def step_cost(bench: Bench) -> Table:
    """By database and by the length of the transcript: the first beside a bare commit, the longer ones beside it."""
    figures: list[Figure] = []
    for backend, floor_of in (("sqlite", sqlite_floor), ("postgres", postgres_floor)):
        floor = floor_of(bench, bench.sizes.floor_samples)
        first, *longer = _by_length(bench, backend)
        limit = LIMIT_MS[backend]
        figures += [floor, compared(first, floor, Target.at_most(first.median, limit, f"≤ {limit:g} ms"))]
        for length, figure in zip(bench.sizes.transcripts[1:], longer, strict=True):
            growth = (figure.cpu_ms or 0) / (first.cpu_ms or 1)
            target = (
                Target.at_most(growth, GROWTH, f"CPU ≤ {GROWTH:g} × the first") if length == 10_000 else None
            )
            figures.append(compared(figure, first, target))
    return Table(
        "A step's own cost: a model call and a tool call that take no time, two guarded commits", figures
    )


def _by_length(bench: Bench, backend: str) -> list[Figure]:
    """The lengths take turns, slice by slice."""
    lengths, rounds = bench.sizes.transcripts, bench.sizes.rounds
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                step_job(
                    bench.new_folder("steps"),
                    bench.new_database(backend, migrated=True),
                    length,
                    bench.sizes.steps,
                )
            )
            for length in lengths
        ]
        taken: list[list[Step]] = [[] for _ in jobs]
        for _ in range(rounds):
            for at, job in enumerate(jobs):
                taken[at] += job.slice()
    return [
        Figure(
            f"{NAMES[backend]}: a step at {length:,} messages", "ms", [step.ms for step in steps],
            cpu_ms=statistics.median(step.cpu_ms for step in steps),
        )
        for length, steps in zip(lengths, taken, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """From one model call to the next: by the clock, and CPU time of the run's thread."""

    ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Nothing:
    """A tool that does nothing, each time with another result: the agent is not to be taken for one in a loop."""

    name: str = "nothing"
    description: str = "Does nothing."
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False
    count: Iterator[int] = field(default_factory=itertools.count)

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 - the interface
        return ToolResult(f"done {next(self.count)}")


class Metronome:
    """A model that answers at once with a call of `nothing`, and notes when it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def ask(self, request: ModelRequest, cancel: CancelToken, run: RunRef | None = None) -> ModelReply:  # noqa: ARG002 - the interface
        self.asked.append((time.perf_counter(), time.thread_time()))
        call = ToolCall(f"call_{uuid.uuid4().hex[:24]}", "nothing", "{}")
        return ModelReply(None, (call,), "tool_calls", Usage(1000, 10), request.model)


@dataclass(frozen=True, slots=True)
class StepJob:
    """A job of steps that never ends, and a worker process's parts that run it in this one."""

    process: WorkerProcess
    job_id: str
    metronome: Metronome
    steps: int

    def slice(self) -> list[Step]:
        """From one model call to the next, in one slice of the job; without its first step, which the claim is part of."""
        self.metronome.asked.clear()
        run_slice(self.process, self.job_id)
        asked = self.metronome.asked
        assert len(asked) == self.steps, f"{len(asked)} of {self.steps} steps were taken"
        return [
            Step((later[0] - earlier[0]) * 1000, (later[1] - earlier[1]) * 1000)
            for earlier, later in itertools.pairwise(asked)
        ]


@contextmanager
def step_job(data_dir: Path, url: str, transcript: int, steps: int) -> Iterator[StepJob]:
    """A job whose transcript has `transcript` messages already, with slices of `steps`. `url`: a migrated database."""
    settings = Settings(
        data_dir=data_dir, database_url=url, model="none", slice_steps=steps, slice_seconds=3600,
        context_window=10_000_000, broker_url=f"redis+socket://{data_dir}/no-broker",
    )  # fmt: skip
    with open_installation(settings) as installation:
        job_id = submit(installation, SubmitRequest("Do nothing, often."), "bench").job.id
        process = WorkerProcess(installation, "bench@localhost", ["agent"], None)
        process.catalogue = Catalogue([Nothing()])
        metronome = Metronome()
        process.ask = metronome.ask  # type: ignore[method-assign]  # the model takes no time
        lengthen(installation, job_id, transcript)
        yield StepJob(process, job_id, metronome, steps)


def lengthen(installation: Installation, job_id: str, transcript: int) -> None:
    """Gives the job a past of `transcript` messages with their calls, in a movement that is over."""
    replies: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for seq in range(1, transcript + 1, 2):
        call = {"id": f"past_{seq}", "name": "nothing", "arguments": "{}"}
        common = {"job_id": job_id, "visit": 1, "run_id": "past", "created_at": 0.0}
        replies.append(common | {"seq": seq, "role": "assistant", "kind": "assistant", "tool_calls": [call]})
        results.append(
            common
            | {"seq": seq + 1, "role": "tool", "kind": "tool", "content": "done", "tool_call_id": call["id"]}
        )
        calls.append({
            "job_id": job_id, "call_id": call["id"], "message_seq": seq, "position": 0, "name": "nothing",
            "arguments": "{}", "state": "done", "result_seq": seq + 1, "is_error": False,
        })  # fmt: skip
    with installation.db.write() as conn:
        for table, rows in ((messages, replies), (messages, results), (tool_calls, calls)):
            conn.execute(sa.insert(table), rows)
        counters = {"total_messages": 2 * len(replies), "total_tool_calls": len(calls), "visit": 1}
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(counters))
