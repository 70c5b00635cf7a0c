"""A job that kills its worker each time ends; its neighbours go on."""

from __future__ import annotations

from itertools import pairwise

from jobs.reasons import Reason
from jobs.states import State
from storage.runs import SUSPECT_ATTEMPTS
from tests.resilience.bench import Bench

MOST = 3


def test_a_poison_job_ends_and_its_neighbours_do_not(bench: Bench) -> None:
    """Whichever worker asks the model for it dies of it, as by the kernel's memory killer (which is a SIGKILL)."""
    poison, *neighbours = (bench.submit(f"Number {number}.") for number in range(4))
    poisoned = bench.endpoint.hold(poison + "/*")
    held = bench.endpoint.hold()  # the neighbours are at work at the first death
    env = {"SOSTENUTO_MAX_ATTEMPTS": str(MOST), "SOSTENUTO_LEASE_SECONDS": "2"}
    for deaths in range(1, MOST + 1):
        worker = bench.start("--concurrency", "8", **env)
        poisoned.wait_held(deaths)
        if deaths == 1:
            held.wait_held(len(neighbours))
        worker.kill()
        if deaths == 1:
            held.release()
    bench.start("--concurrency", "8", **env)

    ended = bench.wait_ended(poison)

    assert (ended.state, ended.reason) == (State.FAILED, Reason.ATTEMPTS_EXHAUSTED)
    assert f"died {MOST} times in a row" in str(ended.error)
    assert bench.deaths(poison) == MOST
    assert bench.endpoint.calls(poison + "/*") == MOST
    for job_id in neighbours:
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
        assert bench.deaths(job_id) == 1
        bench.assert_sound(job_id)
    bench.assert_sound(poison)


def test_one_suspect_at_a_time_in_a_process(sqlite_bench: Bench) -> None:
    """Jobs whose worker died: while one of them runs, the process takes no other such job."""
    bench = sqlite_bench
    job_ids = [bench.submit(f"Number {number}.") for number in range(3)]
    gate = bench.endpoint.hold()
    env = {"SOSTENUTO_LEASE_SECONDS": "2", "SOSTENUTO_SWEEP_SECONDS": "0.2"}
    for deaths in range(1, SUSPECT_ATTEMPTS + 1):
        worker = bench.start("--concurrency", "8", **env)
        gate.wait_held(deaths * len(job_ids))
        worker.kill()
    gate.release()
    fresh = bench.submit("Not a suspect.")
    bench.start("--concurrency", "8")
    suspects = []
    for job_id in job_ids:
        assert bench.wait_ended(job_id, 120).state == State.SUCCEEDED
        suspects += [run for run in bench.runs(job_id) if run["attempt"] >= SUSPECT_ATTEMPTS]
    assert bench.wait_ended(fresh).state == State.SUCCEEDED
    assert len(suspects) == len(job_ids)
    for earlier, later in pairwise(sorted(suspects, key=lambda run: float(run["claimed_at"]))):
        assert earlier["ended_at"] <= later["claimed_at"]
