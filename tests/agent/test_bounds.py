"""Budgets, pauses, cancels, slices and shutdowns: each stops at a boundary, and the job goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.states import State
from storage.records import Checkpoint, Committed
from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.strict_endpoint import Answer, ChatRequest
from tests.waiting import wait_until
from worker.endings import Ending, end_at_boundary, give_back
from worker.job_run import JobRun


def steps(count: int) -> list[Any]:
    return [calls(call("Act", n=n)) for n in range(count)]


@pytest.mark.parametrize(
    ("budget", "more", "name"),
    [
        ({"max_steps": 2}, {"max_steps": 10}, "steps"),
        ({"max_tokens": 3000}, {"max_tokens": 1_000_000}, "tokens"),
        ({"max_seconds": 0.0001}, {"max_seconds": 1000.0}, "time"),
    ],
)
def test_a_used_up_budget_pauses_and_more_goes_on(
    stage: Stage, budget: dict[str, Any], more: dict[str, Any], name: str
) -> None:
    """The job is neither failed nor done twice: the same step follows once the limit is raised."""
    stage.tell(*steps(3), COMPLETE)
    job_id = stage.submit(budget=budget)
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("paused", "budget_exceeded")
    assert f"--max-{name} N" in (job.next_action or "")
    assert job.steps < 4
    done = stage.endpoint.calls()
    assert done == job.steps
    stage.restart()
    assert stage.resume(job_id, **more).state == "queued"
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert [given["n"] for given in stage.acts[0].runs] == [0, 1, 2]
    assert stage.endpoint.calls() == 4


def test_a_budget_that_ends_with_the_last_step_is_no_pause(stage: Stage) -> None:
    stage.tell(calls(call("Act")), COMPLETE)
    job_id = stage.submit(budget={"max_steps": 2})
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_pause_during_a_model_call_stops_after_the_step(stage: Stage) -> None:
    """The paid reply is kept and its calls are done; then nothing more happens until somebody resumes."""
    gate = stage.endpoint.hold()
    stage.tell(*steps(1), COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        assert stage.pause(job_id).reason_text == "pausing after this step"
        stage.look()
        gate.release()
    job = stage.job(job_id)
    assert (job.state, job.reason, job.steps) == ("paused", "paused_by_user", 1)
    assert stage.results(job_id) == ["acted 0"]
    assert stage.row(job_id)["final_message_count"] == job.total_messages
    assert stage.run() is None
    stage.resume(job_id)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_pause_that_was_taken_back_does_not_happen(stage: Stage) -> None:
    """The control thread saw the pause, not yet its withdrawal: the commit of the step knows better."""
    gate = stage.endpoint.hold()
    stage.tell(*steps(1), COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        stage.pause(job_id)
        stage.look()
        stage.resume(job_id)
        gate.release()
    assert stage.job(job_id).state == "succeeded"


def test_a_cancel_during_a_model_call_aborts_it(stage: Stage) -> None:
    gate = stage.endpoint.hold()
    stage.tell(COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        assert stage.cancel(job_id).reason_text == "cancelling"
        stage.look()
        stage.endpoint.wait_aborted()
    job = stage.job(job_id)
    assert (job.state, job.reason, job.steps) == ("cancelled", "cancelled_by_user", 0)
    gate.release()
    stage.retry(job_id)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def in_bash(stage: Stage, wish: Callable[[str], object]) -> str:
    """A job whose command runs until it is killed or told to end; `wish` is made while it runs."""
    command = "touch output/begun; while [ ! -e output/go ]; do sleep 0.05; done; touch output/ended"
    stage.tell(calls(call("Bash", command=command)), COMPLETE)
    job_id = stage.submit()
    output = stage.workspace(job_id) / "output"
    with stage.running():
        wait_until((output / "begun").exists, reason="the command began")
        wish(job_id)
        stage.look()
        if stage.row(job_id)["pause_requested"]:
            (output / "go").touch()
    return job_id


def test_a_cancel_during_a_command_kills_it(stage: Stage) -> None:
    job_id = in_bash(stage, stage.cancel)
    assert stage.job(job_id).state == "cancelled"
    assert not (stage.workspace(job_id) / "output/ended").exists()
    assert stage.call_states(job_id) == ["open"]
    stage.retry(job_id)
    stage.run()
    assert stage.results(job_id)[0].startswith("Interrupted: ")


def test_a_pause_during_a_command_lets_it_end(stage: Stage) -> None:
    job_id = in_bash(stage, stage.pause)
    assert stage.job(job_id).state == "paused"
    assert (stage.workspace(job_id) / "output/ended").exists()
    assert stage.results(job_id) == ["[no output]"]


def test_slices_end_by_steps_and_the_job_goes_on(stage: Stage) -> None:
    """A long job gives way at each boundary, keeps its conversation, and is no death of a worker."""
    stage.restart(slice_steps=2)
    stage.tell(*steps(5), COMPLETE)
    job_id = stage.submit()
    for done in (2, 4):
        assert stage.run() == job_id
        job = stage.job(job_id)
        assert (job.state, job.reason, job.steps, job.attempt) == ("queued", "slice_over", done, 0)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert [run["outcome"] for run in stage.runs(job_id)] == ["requeue", "requeue", "succeed"]
    assert len({request.label for request in stage.endpoint.requests}) == 1


def test_a_slice_that_is_over_gives_way_to_a_waiting_job(stage: Stage) -> None:
    stage.restart(slice_steps=1)
    stage.tell(*steps(1), COMPLETE, COMPLETE)
    first = stage.submit()
    second = stage.submit()
    assert [stage.run() for _ in range(3)] == [first, second, first]


@pytest.mark.parametrize("wish", ["pause", "cancel"])
def test_what_people_ask_at_the_end_of_a_slice_is_done(stage: Stage, wish: str) -> None:
    """A wish that nobody has read when the slice ends must not vanish with it."""
    stage.restart(slice_steps=1)
    with pytest.MonkeyPatch.context() as patch:

        def wished(job: JobRun) -> Ending | None:
            if job.committed_steps and not job.row["pause_requested"]:
                getattr(stage, wish)(job_id)
            return end_at_boundary(job)

        patch.setattr("worker.agent.end_at_boundary", wished)
        stage.tell(*steps(1))
        job_id = stage.submit()
        stage.run()
    assert stage.job(job_id).state == {"pause": "paused", "cancel": "cancelled"}[wish]


def test_a_shutdown_stops_at_the_next_boundary(stage: Stage) -> None:
    """A deploy is no death: the job is queued again at once, and goes on elsewhere."""

    def stop(_request: ChatRequest) -> Answer:
        stage.process.stopping.set()
        return calls(call("Act", n=1))

    job_id = stage.play(stop)
    job = stage.job(job_id)
    assert (job.state, job.reason, job.steps, job.attempt) == ("queued", "worker_stopped", 1, 0)
    assert stage.run() is None  # a stopping process takes nothing more
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_shutdown_past_its_grace_abandons_the_call(stage: Stage) -> None:
    gate = stage.endpoint.hold()
    stage.tell(COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        for run in stage.process.live.all():
            run.cancel.cancel("shutdown")
        stage.endpoint.wait_aborted()
    job = stage.job(job_id)
    assert (job.state, job.reason) == ("queued", "worker_stopped")
    gate.release()
    stage.run()
    assert stage.job(job_id).state == "succeeded"


@pytest.mark.parametrize("wish", ["pause", "cancel"])
def test_a_run_that_is_given_back_does_what_people_asked(stage: Stage, wish: str) -> None:
    """A run that a shutdown or an outage leaves to the heartbeat must not take a cancel with it."""
    gate = stage.endpoint.hold()
    stage.tell(COMPLETE)
    job_id = stage.submit()
    with stage.running():
        gate.wait_held()
        [run] = stage.process.live.all()
        getattr(stage, wish)(job_id)
        give_back(stage.process.db, run.ref, stage.process.name)
        run.cancel.cancel("lease_lost")
        stage.endpoint.wait_aborted()
    gate.release()
    assert stage.job(job_id).state == {"pause": "paused", "cancel": "cancelled"}[wish]
    (stage.resume if wish == "pause" else stage.retry)(job_id)
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_budget_raised_while_the_job_runs_counts_at_once(stage: Stage) -> None:
    """It was read at the claim: the raise must not wait for the next slice."""
    stage.tell(calls(call("Act", n=1)), calls(call("Act", n=2)), calls(call("Act", n=3)), COMPLETE)
    job_id = stage.submit(budget={"max_steps": 2})
    stage.acts[0].effect = lambda _, given: stage.resume(job_id, max_steps=10).id if given["n"] == 2 else None

    stage.run()

    assert stage.job(job_id).state == State.SUCCEEDED
    assert [run["steps"] for run in stage.runs(job_id)] == [4]


def test_a_cancel_beats_a_used_up_budget(stage: Stage) -> None:
    """Asked for in the last step that the budget allows: the job does not end up paused."""
    stage.tell(calls(call("Act", n=1)))
    job_id = stage.submit(budget={"max_steps": 1})
    commit = JobRun.commit

    def cancelled_meanwhile(job: JobRun, checkpoint: Checkpoint) -> Committed:
        if checkpoint.move is not None and checkpoint.move.target == State.PAUSED:
            stage.cancel(job_id)
        return commit(job, checkpoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobRun, "commit", cancelled_meanwhile)
        stage.run()

    assert stage.job(job_id).state == State.CANCELLED
