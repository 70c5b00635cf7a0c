"""Stopping a worker in order, and killing one with its hands full.

The other worker never sweeps here, and no lease runs out: a job that goes on there was woken.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.reasons import Reason
from jobs.settings import Settings
from jobs.states import State
from storage import runs as run_store
from storage.engine import Database
from storage.jobs import get_job
from tests import factories
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, running, story
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandProcess
from tests.waiting import wait_until
from worker import slices
from worker.endings import Ending
from worker.job_run import JobRun
from worker.process import WorkerProcess
from worker.shutdown import Shutdown

NO_SWEEP = {"SOSTENUTO_SWEEP_SECONDS": "3600", "SOSTENUTO_LEASE_SECONDS": "3600"}
FOREVER = "3600"
APPEND = "echo done >> output/effects.txt"


def test_a_model_call_is_abandoned_and_the_job_goes_on_elsewhere(bench: Bench) -> None:
    first, other, job_id = at_a_held_model_call(bench)
    first.term()
    assert first.wait() == 0
    bench.endpoint.wait_aborted(1, job_id + "/*")
    bench.endpoint.wait_calls(3, job_id + "/*")  # the other worker asks again
    assert other.returncode is None
    bench.gates[0].release()
    assert_went_on_in_order(bench, job_id, runs=2)


def test_a_step_ends_within_the_grace_time(bench: Bench) -> None:
    """Its reply comes after the SIGTERM: it is committed, and asked for only once."""
    first, _, job_id = at_a_held_model_call(bench, SOSTENUTO_GRACE_SECONDS=FOREVER)
    first.term()
    first.wait_for_log("stopping: 1 runs have")
    bench.gates[0].release()
    assert first.wait() == 0
    assert_went_on_in_order(bench, job_id, runs=2)
    assert bench.endpoint.calls(job_id + "/*") == 3
    assert bench.endpoint.aborted() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_grace_time(second: signal.Signals, sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    first, _, job_id = at_a_held_model_call(bench, SOSTENUTO_GRACE_SECONDS=FOREVER)
    first.term()
    first.wait_for_log("stopping: 1 runs have")
    assert first.returncode is None
    first.send(second)
    assert first.wait() == 0
    bench.gates[0].release()
    assert_went_on_in_order(bench, job_id, runs=2)


def test_nothing_of_a_command_survives(sqlite_bench: Bench) -> None:
    """A daemon in a session of its own included; its outcome is told as unknown, and it is not run again."""
    bench = sqlite_bench
    command, words = endless_command()
    bench.endpoint.mind = story(
        bash(f"{APPEND}; setsid {command} & setsid -f {command}; {command}"), COMPLETE
    )
    first = bench.start(**NO_SWEEP)
    job_id = bench.submit()
    wait_until(lambda: len(running(words)) >= 3, 60, "the command and its daemons run")
    bench.start(**NO_SWEEP)

    first.term()

    assert first.wait() == 0
    assert running(words) == []
    assert_went_on_in_order(bench, job_id, runs=2)
    assert bench.effects(job_id) == 1


def test_nothing_of_a_command_survives_its_killed_worker(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    command, words = endless_command()
    bench.endpoint.mind = story(bash(f"setsid {command} & setsid -f {command}; {command}"), COMPLETE)
    worker = bench.start()
    bench.submit()
    wait_until(lambda: len(running(words)) >= 3, 60, "the command and its daemons run")
    worker.kill_only()
    wait_until(lambda: not running(words), 60, "all of them are dead")


def test_a_deploy_is_no_death(sqlite_bench: Bench) -> None:
    """More orderly stops than a job may die: it goes on all the same."""
    bench = sqlite_bench
    gate = bench.endpoint.hold()
    job_id = bench.submit()
    for stops in range(1, 3):
        worker = bench.start("--concurrency", "1", SOSTENUTO_MAX_ATTEMPTS="1", **NO_SWEEP)
        gate.wait_held(stops)
        worker.term()
        assert worker.wait() == 0
    gate.release()
    bench.start(SOSTENUTO_MAX_ATTEMPTS="1", **NO_SWEEP)
    assert_went_on_in_order(bench, job_id, runs=3)


def test_fifty_jobs_of_a_killed_worker_go_on_elsewhere(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    gate = bench.endpoint.hold()
    job_ids = [bench.submit(f"Number {number}.") for number in range(50)]
    first = bench.start("--concurrency", "50", SOSTENUTO_LEASE_SECONDS="5")
    gate.wait_held(50)
    first.kill()
    gate.release()
    bench.start("--concurrency", "50", SOSTENUTO_LEASE_SECONDS="5")
    for job_id in job_ids:
        assert bench.wait_ended(job_id, 120).state == State.SUCCEEDED
        bench.assert_sound(job_id)
        assert [run["outcome"] for run in bench.runs(job_id)] == ["lost", "succeed"]
        assert bench.endpoint.calls(job_id + "/*") == 2


def test_a_frozen_database_does_not_keep_a_worker(
    private_postgres_bench: Bench, private_postgres: PostgresServer
) -> None:
    bench = private_postgres_bench
    gate = bench.endpoint.hold()
    worker = bench.start()
    job_id = bench.submit()
    gate.wait_held()
    private_postgres.freeze()
    worker.term()
    assert worker.wait(120) == 0
    private_postgres.thaw()
    gate.release()
    bench.start(SOSTENUTO_LEASE_SECONDS="2")
    assert bench.wait_ended(job_id).state == State.SUCCEEDED


def at_a_held_model_call(bench: Bench, **env: str) -> tuple[CommandProcess, CommandProcess, str]:
    """A worker whose job waits for its second model call, an idle worker, and the job."""
    bench.endpoint.mind = story(bash(APPEND), bash("true"), COMPLETE)
    first_call = bench.endpoint.hold()
    first = bench.start(**NO_SWEEP, **env)
    job_id = bench.submit()
    first_call.wait_held()
    bench.gates.append(bench.endpoint.hold())  # holds the calls from now on
    first_call.release()
    bench.gates[0].wait_held()
    return first, bench.start(**NO_SWEEP), job_id


def assert_went_on_in_order(bench: Bench, job_id: str, *, runs: int) -> None:
    view = bench.wait_ended(job_id)
    assert (view.state, view.attempt) == (State.SUCCEEDED, 0)
    outcomes = [run["outcome"] for run in bench.runs(job_id)]
    assert outcomes == ["requeue"] * (runs - 1) + ["succeed"]
    bench.assert_sound(job_id)


# --- within one process: what only a race would show ---


@pytest.fixture
def process(migrated_url: str, tmp_path: Path, valkey_server: RedisServer) -> WorkerProcess:
    settings = Settings(
        data_dir=tmp_path, database_url=migrated_url, broker_url=valkey_server.url, grace_seconds=60
    )
    return WorkerProcess(Installation(settings, Database(migrated_url)), "w@here", ["agent"], None)


def test_a_claim_that_had_begun_is_waited_for(
    process: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop comes while a claim is being committed: its run is stopped like the others, not overlooked."""
    job_id = factories.make_job(process.db)
    claiming, stopping = threading.Event(), threading.Event()
    stopped_by: list[str | None] = []

    def slow_claim(*arguments: object) -> object:
        claiming.set()
        assert stopping.wait(60)
        return run_store.claim_best(*arguments)  # type: ignore[arg-type]  # as given

    def wait_for_stop(job: JobRun) -> Ending:
        job.live.cancel.wait(60)
        stopped_by.append(job.live.cancel.reason)
        job.live.cancel.raise_if_cancelled()
        raise AssertionError("it was not stopped")

    monkeypatch.setattr(slices, "claim_best", slow_claim)
    kind = replace(slices.AGENT, work=wait_for_stop)
    watchdog = Shutdown(process)
    watchdog.start()
    slice_thread = threading.Thread(target=slices.run_slice, args=(process, job_id, kind))
    slice_thread.start()
    assert claiming.wait(60)

    watchdog.request()
    watchdog.request()  # no grace time
    stopping.set()
    slice_thread.join(60)

    assert stopped_by == ["shutdown"]
    assert get_job(process.db, job_id)["reason"] == Reason.WORKER_STOPPED
    process.closed.set()
    watchdog.join(60)


def test_a_wake_up_that_a_stopping_worker_hears_is_passed_on(
    process: WorkerProcess, valkey_server: RedisServer
) -> None:
    job_id = factories.make_job(process.db)
    process.stopping.set()
    assert slices.run_slice(process, job_id) is None
    process.wakeups.close()
    (message,) = valkey_server.client().lrange("agent", 0, -1)
    assert job_id in str(message)
