"""`sostenuto worker --drain`: a worker leaves between two steps, however long one takes, and nothing is lost or repeated."""

from __future__ import annotations

import json
from typing import Any

from jobs.states import State
from storage.registry import live_workers
from tests.resilience.bench import COMPLETE, Bench, bash, story
from tests.waiting import wait_until

# Nothing but the drain and the wake-ups that it sends moves a job here; heartbeats hear of it within half a second.
CALM = {"SOSTENUTO_SWEEP_SECONDS": "3600", "SOSTENUTO_LEASE_SECONDS": "2"}
APPEND = "echo done >> output/effects.txt"


def workers(bench: Bench) -> dict[str, dict[str, Any]]:
    told = json.loads(bench.cli("workers", "--json"))
    return {worker["name"].partition("@")[0]: worker for worker in told["workers"]}


def test_a_drained_worker_ends_its_step_hands_its_job_over_and_leaves(bench: Bench) -> None:
    bench.environment |= CALM
    bench.endpoint.mind = story(bash(APPEND), bash("true"), COMPLETE)
    leaving = bench.start("--name", "leaving@here")
    before = bench.endpoint.hold()
    job_id = bench.submit()
    before.wait_held()
    held = bench.endpoint.hold(f"{job_id}/*")
    before.release()
    held.wait_held()
    staying = bench.start("--name", "staying@here")
    drain = bench.commands.run("worker", "--drain", "--name", "leaving", env=bench.env())
    drain.wait_for_log("leaving@here: draining, 1 in hand")
    leaving.wait_for_log("draining: no more jobs are taken")
    assert {name: found["state"] for name, found in workers(bench).items()} == {
        "leaving": "draining",
        "staying": "running",
    }
    db = bench.installation.db
    assert [found["name"] for found in live_workers(db, 60, taking=True)] == ["staying@here"]

    others = [bench.submit() for _ in range(4)]  # slots are free in both workers
    for other in others:
        assert bench.wait_ended(other).state == State.SUCCEEDED
        assert {run["worker"] for run in bench.runs(other)} == {"staying@here"}
    assert (leaving.returncode, drain.returncode) == (None, None), "the step goes on for as long as it takes"
    assert bench.endpoint.aborted() == 0
    held.release()
    assert leaving.wait() == 0
    assert drain.wait() == 0
    assert "leaving@here: gone" in drain.log()
    view = bench.wait_ended(job_id)
    assert (view.state, view.attempt) == (State.SUCCEEDED, 0)
    assert [(run["worker"], run["outcome"]) for run in bench.runs(job_id)] == [
        ("leaving@here", "requeue"),
        ("staying@here", "succeed"),
    ]
    assert bench.effects(job_id) == 1
    assert bench.endpoint.calls(f"{job_id}/*") == 3, "no model call was repeated"
    assert staying.returncode is None


def test_a_draining_worker_alone_leaves_jobs_where_they_are(sqlite_bench: Bench) -> None:
    """Its hints would come back to it for ever: it reads the queue no more, and SIGTERM ends it as always."""
    bench = sqlite_bench
    bench.environment |= CALM
    gate = bench.endpoint.hold()
    worker = bench.start()
    first = bench.submit()
    gate.wait_held()
    [found] = live_workers(bench.installation.db, 60)
    name = found["name"]
    assert bench.cli("worker", "--drain", "--name", name, "--no-wait").endswith("asked to leave\n")
    worker.wait_for_log("draining: no more jobs are taken")
    waiting = bench.submit()
    broker = bench.broker.client()
    wait_until(lambda: broker.llen("agent") == 1, reason="the hint lies in the queue")
    worker.term()
    assert worker.wait() == 0
    assert broker.llen("agent") >= 1
    broker.close()
    assert [bench.view(job_id).state for job_id in (first, waiting)] == [State.QUEUED] * 2
    gate.release()

    back, other = bench.start("--name", name), bench.start()  # a new process of that name is asked nothing
    assert len(live_workers(bench.installation.db, 60, taking=True)) == 2
    everyone = bench.commands.run("worker", "--drain", "--all", env=bench.env())
    assert (everyone.wait(), back.wait(), other.wait()) == (0, 0, 0)
    nobody = bench.commands.run("worker", "--drain", env=bench.env())
    check = bench.commands.run("workers", "--here", "--check", env=bench.env())
    assert (nobody.wait(), check.wait()) == (2, 1)
    assert "no worker on" in nobody.log()
