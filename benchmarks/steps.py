"""The system's own cost of a step: one model reply, one tool call, two guarded commits; model and tool take no time."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

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
        self.asked: list[float] = []

    def ask(self, request: ModelRequest, cancel: CancelToken, run: RunRef | None = None) -> ModelReply:  # noqa: ARG002 - the interface
        self.asked.append(time.perf_counter())
        call = ToolCall(f"call_{uuid.uuid4().hex[:24]}", "nothing", "{}")
        return ModelReply(None, (call,), "tool_calls", Usage(1000, 10), request.model)


def step_times(data_dir: Path, transcript: int, steps: int) -> list[float]:
    """Milliseconds from one model call to the next, in a job whose transcript has `transcript` messages already."""
    settings = Settings(
        data_dir=data_dir, model="none", slice_steps=steps + 1, slice_seconds=3600, context_window=10_000_000
    )
    with open_installation(settings) as installation:
        job_id = submit(installation, SubmitRequest("Do nothing, often."), "bench").job.id
        process = WorkerProcess(installation, "bench@localhost", ["agent"], None)
        process.catalogue = Catalogue([Nothing()])
        metronome = Metronome()
        process.ask = metronome.ask  # type: ignore[method-assign]  # the model takes no time
        lengthen(installation, job_id, transcript)
        run_slice(process, job_id)
    asked = metronome.asked[1:]  # the first step also begins the movement
    times = [(later - earlier) * 1000 for earlier, later in itertools.pairwise(asked)]
    assert len(times) == steps - 1, f"{len(times)} of {steps} steps were measured"
    return times


def lengthen(installation: Installation, job_id: str, transcript: int) -> None:
    """Gives the job a past of `transcript` messages with their calls, in a movement that is over."""
    rows: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for seq in range(1, transcript + 1, 2):
        call = {"id": f"past_{seq}", "name": "nothing", "arguments": "{}"}
        common = {"job_id": job_id, "visit": 1, "run_id": "past", "created_at": 0.0}
        rows.append(common | {"seq": seq, "role": "assistant", "kind": "assistant", "tool_calls": [call]})
        rows.append(
            common
            | {"seq": seq + 1, "role": "tool", "kind": "tool", "content": "done", "tool_call_id": call["id"]}
        )
        calls.append({
            "job_id": job_id, "call_id": call["id"], "message_seq": seq, "position": 0, "name": "nothing",
            "arguments": "{}", "state": "done", "result_seq": seq + 1, "is_error": False,
        })  # fmt: skip
    with installation.db.write() as conn:
        for row in rows:
            conn.execute(sa.insert(messages), row)
        conn.execute(sa.insert(tool_calls), calls)
        counters = {"total_messages": len(rows), "total_tool_calls": len(calls), "visit": 1}
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(counters))
