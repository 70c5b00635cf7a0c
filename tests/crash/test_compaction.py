"""A context worker dies by SIGKILL around the summary and the swap; another one goes on, and nothing is lost or doubled."""

from __future__ import annotations

import json

import pytest

from jobs.states import State
from jobs.submit import SubmitRequest, submit
from storage.records import Summary
from storage.summaries import list_summaries
from tests.crash.bench import CrashBench, died_by_kill
from tests.strict_endpoint import ChatRequest, Reply
from tests.strict_endpoint.minds import Call

# Where the context worker dies, and how many calls for the summary are made again: those of a summary that was not yet
# swapped in, once.
CALLS = 2  # of one summary: the conversation goes to the model in two parts
CONTEXT_POINTS = {
    "claim.committed": 0,
    "model.calling": 0,
    "model.replied": 1,
    "charge.committing": 1,
    "charge.committed": 1,
    "swap.committing": CALLS,
    "swap.committed": 0,
}
TRIM_POINTS = ("trim.committing", "trim.committed")

STEPS = 16
PIECE = {
    "name": "long",
    "description": "One movement that fills its context.",
    "initial_movement": "work",
    "movements": [
        {
            "name": "work",
            "persona": "Works.",
            "instruction": "Write a lot.",
            "edit": True,
            "allowed_tools": ["Write", "Read"],
            "rules": [{"condition": "done", "next": "COMPLETE"}],
        }
    ],
}
WINDOW = {
    "SOSTENUTO_CONTEXT_WINDOW": "6000",
    "SOSTENUTO_CONTEXT_COMPRESSION_KEEP_RECENT": "4",
    "SOSTENUTO_SLICE_STEPS": "100",
}


class Filling:
    """Writes one file after the other, then ends; the calls it made are known from its own replies alone."""

    def __init__(self, read_large: bool = False) -> None:
        self.read_large = read_large
        self.said = 0

    def __call__(self, request: ChatRequest) -> Reply:
        if "/compaction/" in request.label:
            return Reply("Files 1 to some are written.")
        self.said += 1
        if self.said > STEPS:
            return Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "all written"}),))
        if self.read_large and self.said in (2, 3):
            return Reply(calls=(Call("Read", {"path": "output/1.txt"}),))
        size = 250 if not self.read_large else 1600 if self.said == 1 else 100
        content = f"{self.said} " + "word " * size
        return Reply(calls=(Call("Write", {"path": f"output/{self.said}.txt", "content": content}),))


def submit_long(bench: CrashBench) -> str:
    folder = bench.installation.settings.pieces_dir
    assert folder is not None
    folder.mkdir(exist_ok=True)
    (folder / "long.yaml").write_text(json.dumps(PIECE))
    return submit(bench.installation, SubmitRequest("Write.", piece="long"), "local").job.id


def compactions(bench: CrashBench, job_id: str) -> list[Summary]:
    return list_summaries(bench.installation.db, job_id)


@pytest.mark.parametrize("point", CONTEXT_POINTS)
def test_a_context_worker_dies_at(point: str, bench: CrashBench) -> None:
    bench.endpoint.mind = Filling()
    job_id = submit_long(bench)
    bench.commands("--queues", "agent", "--concurrency", "2", env=bench.env(**WINDOW))
    armed = bench.env(**WINDOW, SOSTENUTO_CRASH_POINT=point)
    died_by_kill(bench.commands("--queues", "context", "--concurrency", "2", env=armed))
    bench.commands("--queues", "context", "--concurrency", "2", env=bench.env(**WINDOW))

    view = bench.wait_ended(job_id)

    assert (view.state, view.result) == (State.SUCCEEDED, "all written")
    bench.assert_sound(job_id)
    found = compactions(bench, job_id)
    assert len(found) == 1
    assert bench.endpoint.calls(f"{job_id}/compaction/*") == CALLS + CONTEXT_POINTS[point]
    assert [m.content for m in bench.messages(job_id) if m.kind == "summary"] == [found[0].content]


@pytest.mark.parametrize("point", TRIM_POINTS)
def test_an_agent_dies_while_it_shortens_old_results_at(point: str, bench: CrashBench) -> None:
    bench.endpoint.mind = Filling(read_large=True)
    job_id = submit_long(bench)
    window = WINDOW | {"SOSTENUTO_CONTEXT_WINDOW": "8000"}
    died_by_kill(bench.commands("--concurrency", "2", env=bench.env(**window, SOSTENUTO_CRASH_POINT=point)))
    bench.commands("--concurrency", "2", env=bench.env(**window))

    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    bench.assert_sound(job_id)


def test_a_frozen_context_worker_writes_nothing(bench: CrashBench) -> None:
    """SIGSTOP just before the swap, past the lease: another worker swaps; the zombie wakes and changes nothing."""
    bench.commands("--queues", "agent", "--concurrency", "2", env=bench.env(**WINDOW))

    def begin() -> str:
        bench.endpoint.mind = Filling()
        return submit_long(bench)

    frozen, job_id = bench.frozen_context_worker("model.replied:2", begin, WINDOW)
    assert bench.endpoint.calls(f"{job_id}/compaction/*") == CALLS
    bench.commands("--queues", "context", "--concurrency", "2", env=bench.env(**WINDOW))
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    before = (bench.messages(job_id), compactions(bench, job_id))

    frozen.cont()
    frozen.wait_for_log("no longer owns job")

    assert (bench.messages(job_id), compactions(bench, job_id)) == before
    assert len(before[1]) == 1
    bench.assert_sound(job_id)
