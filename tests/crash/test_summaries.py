"""A worker dies by SIGKILL around a job's final summary; another one writes it, once, and whoever waits goes on."""

from __future__ import annotations

import uuid

import pytest

from jobs.states import State
from jobs.submit import SubmitRequest, submit
from storage.comments import list_comments
from storage.jobs import list_events_of_kind
from storage.runs import list_runs
from storage.summaries import list_summaries
from tests.crash.bench import CrashBench, died_by_kill, mind
from tests.strict_endpoint import ChatRequest, Reply
from tests.waiting import wait_until

# Where the writer dies, and how many calls for the summary are made again: one that was not committed, once.
FINAL_POINTS = {
    "claim.committing": 0,
    "claim.committed": 0,
    "model.calling": 0,
    "model.replied": 1,
    "charge.committing": 1,
    "charge.committed": 1,
    "summary.committing": 1,
    "summary.committed": 0,
}
TEXT = "The answer is 42."
ON = {"SOSTENUTO_CONTEXT_FINAL_SUMMARY_ENABLED": "true"}


def answer(request: ChatRequest) -> Reply:
    return Reply(TEXT) if "/final/" in request.label else mind(request)


def ended_job(bench: CrashBench, about: str = "7") -> str:
    """A job whose agent's worker has left; its summary is still to be written."""
    bench.endpoint.mind = answer
    bench.write_piece()
    asked = SubmitRequest("Do it.", piece="crash", task_identifier=about, repository="demo", user="ann")
    job_id = submit(bench.installation, asked, "local").job.id
    bench.commands("--queues", "agent", "--concurrency", "2", env=bench.env(**ON))
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    return job_id


def follower(bench: CrashBench) -> str:
    asked = SubmitRequest("Go on.", piece="crash", task_identifier="7", repository="demo", user="ann")
    return submit(bench.installation, asked, "local").job.id


def context_worker(bench: CrashBench, **armed: str) -> None:
    command = bench.commands("--queues", "context", "--concurrency", "2", env=bench.env(**ON, **armed))
    if armed:
        died_by_kill(command)


def wait_summarised(bench: CrashBench, job_id: str) -> None:
    wait_until(lambda: bench.view(job_id).summary_state == "done", 120, "the summary is written")


@pytest.mark.parametrize("point", FINAL_POINTS)
def test_the_writer_of_a_summary_dies_at(point: str, bench: CrashBench) -> None:
    """One summary, one comment, one inheritance; the result of the ended job stays what it was."""
    job_id = ended_job(bench)
    later = follower(bench)
    assert bench.view(later).state == State.INHERITING
    before = bench.view(job_id)

    context_worker(bench, SOSTENUTO_CRASH_POINT=point)
    context_worker(bench)

    wait_summarised(bench, job_id)
    assert bench.wait_ended(later).state == State.SUCCEEDED
    after = bench.view(job_id)
    assert (after.state, after.result, after.steps) == (before.state, before.result, before.steps)
    final = [summary.content for summary in list_summaries(bench.installation.db, job_id)]
    assert final == [TEXT]
    assert bench.endpoint.calls(f"{job_id}/final/*") == 1 + FINAL_POINTS[point]
    head = [m.content or "" for m in bench.messages(later) if (m.extra or {}).get("block") == "inheritance"]
    assert len(set(head)) == 1
    assert TEXT in head[0]
    notes = [c for c in list_comments(bench.installation.db, later) if c.author == "system"]
    assert len(notes) == 1
    assert len(list_events_of_kind(bench.installation.db, later, "inherited")) == 1
    bench.assert_sound(later)


def test_a_frozen_writer_writes_nothing(bench: CrashBench) -> None:
    """SIGSTOP just after the model's answer, past the lease: another worker writes the summary, the zombie wakes."""
    frozen, job_id = bench.frozen_context_worker(
        "model.replied:1", lambda: ended_job(bench, uuid.uuid4().hex), ON
    )
    context_worker(bench)
    wait_summarised(bench, job_id)
    before = bench.installation.db

    frozen.cont()
    frozen.wait_for_log("no longer owns job")

    assert len(list_summaries(before, job_id)) == 1
    outcomes = [run["outcome"] for run in list_runs(before, job_id) if run["kind"] == "summary"]
    assert outcomes == ["lost", "done"]
