"""What a compaction costs the system itself: the claim, the plan, the summariser's request, the swap."""

from __future__ import annotations

import itertools
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench import BACKENDS, NAMES, Bench
from benchmarks.figures import Figure, Table, compared
from jobs.installation import open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from storage.jobs import get_job
from worker.cancel import CancelToken
from worker.context_run import run_context
from worker.model.types import ModelReply, ModelRequest, ToolCall, Usage
from worker.process import WorkerProcess
from worker.slices import run_slice
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.catalogue import Catalogue

WINDOW = 32_000
RESULT = "A line of an ordinary result, neither short nor long.\n" * 40
SUMMARY = "Entries were read one after another; nothing was decided. " * 20


@dataclass(frozen=True, slots=True)
class Read:
    """A tool with results that fill a context."""

    name: str = "entry"
    description: str = "Reads one entry."
    parameters: dict[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 - the interface
        return ToolResult(f"{arguments['n']}\n{RESULT}")


class Reader:
    """A model that reads on and on, and summarises when it is asked to; notes what its own answers took."""

    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.count()

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:  # noqa: ARG002 - the interface
        if request.step is None:
            return ModelReply(SUMMARY, (), "stop", Usage(None, None), request.model)
        arguments = json.dumps({"n": next(self.numbers)})
        call = ToolCall(f"call_{uuid.uuid4().hex[:24]}", "entry", arguments)
        return ModelReply(None, (call,), "tool_calls", Usage(None, None), request.model)


@dataclass
class Costs:
    """Milliseconds of each compaction and of the steps between them."""

    compactions: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


def compaction(bench: Bench) -> Table:
    """One job that fills its context again and again; the model takes no time."""
    figures = []
    for backend in BACKENDS:
        costs = compaction_costs(
            bench.new_folder("compaction"),
            bench.new_database(backend, migrated=True),
            bench.sizes.compactions,
        )
        step = Figure(
            f"{NAMES[backend]}: a step with a result of {len(RESULT):,} characters", "ms", costs.steps
        )
        figure = Figure(
            f"{NAMES[backend]}: a compaction", "ms", costs.compactions, cpu_ms=statistics.median(costs.cpu)
        )
        figures += [step, compared(figure, step)]
    note = f"A window of {WINDOW:,} tokens, compacted at 80%: the whole run of the context queue. In practice the model's summary takes many times that."
    return Table("A compaction's own cost", figures, [note])


def compaction_costs(folder: Path, url: str, compactions: int) -> Costs:
    """Runs one job through so many compactions, in this process."""
    settings = Settings.model_validate({
        "data_dir": folder, "database_url": url, "model": "reader", "context_window": WINDOW,
        "max_output_tokens": 2_000, "exchanges": {"keep_days": 0}, "slice_steps": 10_000, "slice_seconds": 3600,
        "broker_url": f"redis+socket://{folder}/no-broker",
    })  # fmt: skip
    costs = Costs()
    with open_installation(settings) as installation:
        job_id = submit(installation, SubmitRequest("Read the entries."), "bench").job.id
        process = WorkerProcess(installation, "bench@localhost", ["agent", "context"], None)
        process.catalogue = Catalogue([Read()])
        process.models.complete = Reader().complete  # type: ignore[method-assign]  # the model takes no time
        for _ in range(compactions):
            steps = get_job(installation.db, job_id)["steps"]
            began = time.perf_counter()
            run_slice(process, job_id)
            row = get_job(installation.db, job_id)
            assert row["state"] == "compressing", f"the job is {row['state']}"
            costs.steps.append((time.perf_counter() - began) * 1000 / (row["steps"] - steps))
            began, cpu = time.perf_counter(), time.thread_time()
            run_context(process, job_id)
            costs.compactions.append((time.perf_counter() - began) * 1000)
            costs.cpu.append((time.thread_time() - cpu) * 1000)
        assert get_job(installation.db, job_id)["total_summaries"] == compactions
    return costs
