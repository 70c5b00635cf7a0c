"""Leases: a live run keeps its own whatever it does, and one that cannot renew it stops before it ends."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.installation import Installation
from jobs.reasons import Reason
from jobs.settings import Settings
from jobs.states import Event, State
from jobs.views import list_events
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database, wall_clock
from storage.errors import DatabaseUnavailable, LeaseLost
from storage.jobs import get_job
from storage.models import runs
from storage.records import Checkpoint, Commit, NewMessage, RunRef
from storage.runs import list_runs
from tests import factories
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, job_of, running, story
from tests.servers.postgres import PostgresServer
from tests.strict_endpoint import ChatRequest, Reply
from tests.waiting import wait_until
from worker import heartbeat as heartbeat_module
from worker.endings import give_back, leaving
from worker.heartbeat import Heartbeat, LeaseWatch
from worker.live import LiveRun
from worker.process import WorkerProcess
from worker.sweep import take_back

ROUNDS = 200


def make_process(url: str, folder: Path, **settings: float) -> WorkerProcess:
    made = Settings.model_validate(
        {"data_dir": folder, "database_url": url, "broker_url": f"redis+socket://{folder}/no-broker"}
        | settings
    )
    return WorkerProcess(Installation(made, Database(url)), "w@here", ["agent"], None)


@pytest.fixture
def process(migrated_url: str, tmp_path: Path) -> WorkerProcess:
    return make_process(migrated_url, tmp_path, lease_seconds=2)


def running_job(db: Database, *, expired: bool = False) -> RunRef:
    job_id = factories.make_job(db, State.RUNNING)
    ref = RunRef(str(get_job(db, job_id)["run_id"]), job_id)
    if expired:
        expire(db, ref)
    return ref


def expire(db: Database, ref: RunRef) -> None:
    with db.write() as conn:
        conn.execute(sa.update(runs).where(runs.c.id == ref.run_id).values(lease_expires_at=wall_clock() - 1))


# --- the fence ---


def finish(db: Database, ref: RunRef) -> bool:
    """The run's own end; False when it was refused."""
    move = leaving(State.RUNNING, Event.SUCCEED, Reason.COMPLETED)
    try:
        commit_if_run_owns(db, ref, Checkpoint(Commit.END, move=move, values={"result": "done"}))
    except LeaseLost:
        return False
    return True


@pytest.mark.parametrize("kind", Commit)
def test_every_checkpoint_of_a_run_that_was_swept_is_refused(kind: Commit, process: WorkerProcess) -> None:
    ref = running_job(process.db, expired=True)
    take_back(process, ref)
    before = get_job(process.db, ref.job_id)
    checkpoint = Checkpoint(kind, messages=[NewMessage("user", "gap", "late")], steps=1, prompt_tokens=7)
    if kind is Commit.END:
        checkpoint.move = leaving(State.RUNNING, Event.SUCCEED, Reason.COMPLETED)
    with pytest.raises(LeaseLost):
        commit_if_run_owns(process.db, ref, checkpoint)
    assert get_job(process.db, ref.job_id) == before


def test_a_finish_beats_the_sweep(process: WorkerProcess) -> None:
    """The lease is over, but nobody has taken the job yet: the finish counts, and the sweep then leaves it alone."""
    ref = running_job(process.db, expired=True)
    assert finish(process.db, ref)
    take_back(process, ref)
    job = get_job(process.db, ref.job_id)
    assert (job["state"], job["result"], job["attempt"]) == (State.SUCCEEDED, "done", 0)


def test_a_heartbeat_beats_the_sweep(process: WorkerProcess) -> None:
    """The sweep has seen the lease expired; it is renewed before the sweep takes it."""
    ref = running_job(process.db, expired=True)
    process.live.add(LiveRun(ref, suspect=False))
    Heartbeat(process).beat()
    take_back(process, ref)
    assert get_job(process.db, ref.job_id)["run_id"] == ref.run_id


def test_a_finish_and_the_sweep_at_once(process: WorkerProcess) -> None:
    """Hundreds of races: one of them wins whole, the other changes nothing."""
    starting = threading.Barrier(2)
    refs = [running_job(process.db, expired=True) for _ in range(ROUNDS)]
    finished: dict[str, bool] = {}

    def finisher() -> None:
        for ref in refs:
            starting.wait(60)
            finished[ref.job_id] = finish(process.db, ref)

    thread = threading.Thread(target=finisher)
    thread.start()
    for ref in refs:
        starting.wait(60)
        take_back(process, ref)
    thread.join(60)

    for ref in refs:
        job = get_job(process.db, ref.job_id)
        (run,) = list_runs(process.db, ref.job_id)
        kinds = [event.kind for event in list_events(process.installation, ref.job_id)]
        if finished[ref.job_id]:
            assert (job["state"], job["attempt"], run["outcome"]) == (State.SUCCEEDED, 0, "succeed")
            assert kinds == ["submit", "succeed"]
        else:
            assert (job["state"], job["attempt"], run["outcome"]) == (State.QUEUED, 1, "lost")
            assert kinds == ["submit", "lease_expired"]


# --- keeping it ---


def test_a_busy_interpreter_keeps_its_leases(process: WorkerProcess) -> None:
    """Threads that compute in pure Python do not keep the heartbeat from its work."""
    ref = running_job(process.db)
    live = LiveRun(ref, suspect=False)
    process.live.add(live)
    done = threading.Event()

    def spin() -> None:
        number = 0
        while not done.is_set():
            number = (number * 31 + 7) % 1_000_003

    heartbeat, watch = Heartbeat(process), LeaseWatch(process)
    threads = [threading.Thread(target=spin) for _ in range(2)] + [heartbeat, watch]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: _leases_held(process.db, ref.job_id) > 3, 120, "the lease was renewed for long")
        assert live.cancel.reason is None
    finally:
        done.set()
        heartbeat.stop()
        watch.stop()
        for thread in threads:
            thread.join(60)


def _leases_held(db: Database, job_id: str) -> float:
    """For how many leases (of 2 s) the job's first run has lasted, as its heartbeat says."""
    run = list_runs(db, job_id)[0]
    return float((run["lease_expires_at"] - run["claimed_at"]) / 2) - 1


def test_fifty_jobs_keep_their_leases(bench: Bench) -> None:
    """A slow model and a long command: three leases later all are still held, and none was ever lost."""
    gate = bench.endpoint.hold()
    in_bash = "mkfifo output/gate; echo > output/begun; cat output/gate"
    bench.endpoint.mind = story(bash(in_bash), COMPLETE)
    tool_job = bench.submit()
    bench.start("--concurrency", "50", SOSTENUTO_LEASE_SECONDS="4")
    gate.wait_held(1)
    gate.release()
    bench.wait_file(tool_job, "begun")
    gate = bench.endpoint.hold()
    bench.endpoint.mind = lambda _: COMPLETE
    job_ids = [bench.submit(f"Number {number}.") for number in range(49)]
    gate.wait_held(49)

    for job_id in (tool_job, *job_ids):
        wait_until(lambda: _leases_held(bench.installation.db, job_id) > 6, 120, "leases are kept")  # noqa: B023 - called at once
    gate.release()
    bench.file(tool_job, "gate").write_text("go on\n")

    for job_id in (tool_job, *job_ids):
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
        assert [run["outcome"] for run in bench.runs(job_id)] == ["succeed"]


# --- giving it up ---


def test_a_run_stops_at_two_thirds_of_its_lease(process: WorkerProcess) -> None:
    """The watch asks no database: it goes by when the heartbeat last succeeded."""
    lease = process.settings.lease_seconds
    fresh, stale = (LiveRun(RunRef(name, name), suspect=False) for name in ("fresh", "stale"))
    stale.renewed_at -= lease * 0.7
    for live in (fresh, stale):
        process.live.add(live)
    process.db.close()
    LeaseWatch(process).look()
    assert (fresh.cancel.reason, stale.cancel.reason) == (None, "lease_lost")


def test_all_runs_are_given_back_though_the_database_fails_in_between(
    process: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three meets another failure: it and the others are given back at the next beat."""
    refs = [running_job(process.db) for _ in range(3)]
    for ref in refs:
        process.give_back_later(ref.run_id)
    process.give_back_later("a claim that was never committed")
    failures = iter([None, DatabaseUnavailable("away again")])

    def failing_once(*arguments: Any) -> Any:
        if failure := next(failures, None):
            raise failure
        return give_back(*arguments)

    monkeypatch.setattr(heartbeat_module, "give_back", failing_once)
    heartbeat = Heartbeat(process)
    with pytest.raises(DatabaseUnavailable):
        heartbeat.beat()
    assert {get_job(process.db, ref.job_id)["state"] for ref in refs} == {State.QUEUED, State.RUNNING}
    heartbeat.beat()
    for ref in refs:
        job = get_job(process.db, ref.job_id)
        assert (job["state"], job["reason"], job["attempt"]) == (State.QUEUED, Reason.WORKER_STOPPED, 0)
    assert process.take_given_back() == []


@contextmanager
def locked_sqlite(bench: Bench) -> Iterator[None]:
    """Another program holds the file's write lock."""
    connection = sqlite3.connect(str(bench.installation.db.url.database), timeout=60, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    server.freeze()
    yield
    server.thaw()


def test_a_worker_that_cannot_renew_on_sqlite(sqlite_bench: Bench) -> None:
    assert_stops_and_gives_back(sqlite_bench, lambda: locked_sqlite(sqlite_bench))


def test_a_worker_that_cannot_renew_on_postgres(
    private_postgres_bench: Bench, private_postgres: PostgresServer
) -> None:
    assert_stops_and_gives_back(private_postgres_bench, lambda: frozen(private_postgres))


def assert_stops_and_gives_back(bench: Bench, outage: Callable[[], AbstractContextManager[None]]) -> None:
    """While the database is away the model call is dropped and the command killed: another worker could begin any
    moment. When it is back the jobs go on, and no death is counted."""
    command, words = endless_command()
    in_model, in_bash = bench.submit("In the model."), bench.submit("In a command.")

    def mind(request: ChatRequest) -> Reply:
        return bash(command) if job_of(request) == in_bash and request.replies == 0 else COMPLETE

    bench.endpoint.mind = mind
    gate = bench.endpoint.hold(in_model + "/*")
    worker = bench.start(SOSTENUTO_LEASE_SECONDS="3")
    gate.wait_held()
    wait_until(lambda: running(words), 60, "the command runs")

    with outage():
        bench.endpoint.wait_aborted(1, in_model + "/*")
        wait_until(lambda: not running(words), 60, "the command is killed")
    gate.release()

    for job_id in (in_model, in_bash):
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
        assert bench.deaths(job_id) == 0
        bench.assert_sound(job_id)
    assert worker.returncode is None
