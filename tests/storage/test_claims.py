"""Claims, leases and wake-ups: the best job, to one run alone, found by an index; a dead run's job comes back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.database_work import DatabaseWork
from jobs.states import Event, State
from jobs.wakeups import AGENT_QUEUE
from storage.choosing import Wanted, choose
from storage.engine import Database, wall_clock
from storage.errors import LeaseLost
from storage.jobs import job_tx
from storage.models import job_events, jobs, runs
from storage.records import NewEvent, RunRef
from storage.runs import (
    SUSPECT_ATTEMPTS,
    claim_best,
    count_live_runs,
    end_run_if_expired,
    expired_runs,
    list_runs,
    read_wishes,
    renew_leases,
    take_unwoken_jobs,
)
from tests import factories
from tests.factories import claim, commit, expire_lease, move, running_job
from tests.storage.children import run_children
from tests.storage.plans import analyse, plans, recorded, scans

OLD = 1_000_000.0  # long due


def _claimed(db: Database, hint: str | None = None, **how: Any) -> str | None:
    row = claim_best(db, claim(**how), hint)
    return None if row is None else str(row["id"])


# --- which one ---


def test_priority_then_hint_then_age(db: Database) -> None:
    young = factories.make_job(db, available_at=OLD + 9)
    old = factories.make_job(db, available_at=OLD)
    hinted = factories.make_job(db, available_at=OLD + 5)
    urgent = factories.make_job(db, available_at=OLD + 8, priority=1)
    low = factories.make_job(db, available_at=OLD - 9, priority=-1)
    assert [_claimed(db, hinted) for _ in range(6)] == [urgent, hinted, old, young, low, None]


def test_of_jobs_due_at_once_the_first_submitted_goes_first(db: Database) -> None:
    for job_id in ("03", "01", "02"):
        factories.make_job(db, id=job_id, available_at=OLD)
    assert [_claimed(db) for _ in range(3)] == ["01", "02", "03"]


def test_a_hint_does_not_pass_a_better_job_nor_a_rule(db: Database) -> None:
    better = factories.make_job(db, priority=5)
    worse = factories.make_job(db)
    later = factories.make_job(db, priority=9, available_at=wall_clock() + 3600)
    paused = factories.make_job(db, State.PAUSED, priority=9)
    assert _claimed(db, worse) == better
    for hint in (later, paused, "no such job"):
        assert _claimed(db, hint) in (worse, None)
    assert _claimed(db, later) is None


def test_a_job_of_the_future_is_not_claimed_until_it_is_due(db: Database) -> None:
    job_id = factories.make_job(db, available_at=wall_clock() + 3600)
    assert _claimed(db, job_id) is None
    factories.set_columns(db, job_id, available_at=wall_clock() - 1)
    assert _claimed(db) == job_id


def test_a_claim_does_not_walk_over_jobs_of_the_future(db: Database) -> None:
    """However many wait for their time, and however urgent they are then: counted in what the database reads."""
    work = DatabaseWork(db)
    counts = []
    future = time.time() + 3600
    for more in (50, 5_000):
        for priority in (7, 3):
            factories.make_jobs(db, more, available_at=future, priority=priority)
        due = factories.make_jobs(db, 3, available_at=OLD)
        analyse(db)
        before = work.so_far()
        assert {_claimed(db) for _ in due} == set(due)
        counts.append(work.so_far() - before)
    assert counts[1] <= counts[0] * 2, f"{counts[0]} {work.unit} became {counts[1]}"


def test_suspects_are_claimed_only_where_they_are_allowed(db: Database) -> None:
    suspect = factories.make_job(db, attempt=SUSPECT_ATTEMPTS, priority=1)
    harmless = factories.make_job(db, attempt=SUSPECT_ATTEMPTS - 1)
    assert _claimed(db, suspect, allow_suspects=False) == harmless
    assert _claimed(db, suspect, allow_suspects=False) is None
    assert _claimed(db, allow_suspects=True) == suspect


def test_a_claim_leases_the_job_and_says_so(db: Database) -> None:
    job_id = factories.make_job(db, attempt=1, reason_data={"x": 1})
    asked = claim("host:7", lease=60)
    row = claim_best(db, asked, None)
    assert row is not None
    assert row == factories.job_now(db, job_id)
    assert (row["state"], row["run_id"], row["reason"], row["reason_data"]) == (
        State.RUNNING, asked.run_id, None, None,
    )  # fmt: skip
    assert row["started_at"] is not None
    (run,) = list_runs(db, job_id)
    assert (run["id"], run["worker"], run["attempt"], run["ended_at"]) == (asked.run_id, "host:7", 1, None)
    assert run["lease_expires_at"] - run["claimed_at"] == pytest.approx(60)
    event = factories.rows_of(db, job_events, job_id)[-1]
    assert (event["kind"], event["actor"], event["from_state"], event["to_state"], event["run_id"]) == (
        "claim", "host:7", "queued", "running", asked.run_id,
    )  # fmt: skip
    assert count_live_runs(db, "agent") == 1
    assert count_live_runs(db, "context") == 0
    started = row["started_at"]
    commit(db, RunRef(asked.run_id, job_id), move=move(State.QUEUED, Event.REQUEUE))
    factories.claim_job(db, job_id)
    assert factories.job_now(db, job_id)["started_at"] == started  # of the first run


# --- exactly once ---


def test_eight_threads_claim_a_hundred_jobs_once_each(db: Database) -> None:
    ids = factories.make_jobs(db, 100)
    start = threading.Barrier(8)

    def claim_all(number: int) -> list[str]:
        start.wait(30)
        found = []
        while (job_id := _claimed(db, ids[number], worker=f"w{number}")) is not None:
            found.append(job_id)
        return found

    with ThreadPoolExecutor(8) as pool:
        claimed = [job_id for found in pool.map(claim_all, range(8)) for job_id in found]
    assert sorted(claimed) == sorted(ids)
    with db.read() as conn:
        pairs = conn.execute(sa.select(jobs.c.id, jobs.c.run_id)).all()
        leased = conn.execute(sa.select(runs.c.job_id, runs.c.id)).all()
    assert sorted(map(tuple, pairs)) == sorted(map(tuple, leased))


def test_processes_claim_each_job_once(db: Database) -> None:
    ids = factories.make_jobs(db, 60)
    body = """
from storage.runs import claim_best
from tests.factories import claim
found = []
while (row := claim_best(db, claim(args["worker"]), args["hint"])) is not None:
    found.append(row["id"])
print(json.dumps(found))
"""
    url = db.url.render_as_string(hide_password=False)
    given = [{"url": url, "worker": f"w{number}", "hint": ids[-1]} for number in range(3)]
    claimed = run_children(body, given)
    assert sorted(job_id for found in claimed for job_id in found) == sorted(ids)


def test_a_claim_waits_for_nobody_on_postgres(db: Database) -> None:
    """A job whose row somebody holds is passed over, not waited for."""
    held, free = (factories.make_job(db, priority=priority) for priority in (1, 0))
    if db.is_sqlite:
        assert _claimed(db) == held  # there is one writer at a time: nothing to pass over
        return
    with job_tx(db, held):
        assert _claimed(db, held) == free
        assert _claimed(db, held) is None
    assert _claimed(db) == held


def test_a_claim_locks_no_other_job_than_the_one_it_takes(db: Database) -> None:
    """Two workers, each told of the other's best: one found nothing, and its job waited for the next sweep."""
    first, second = (factories.make_job(db) for _ in range(2))
    if db.is_sqlite:
        assert [_claimed(db, second), _claimed(db, first)] == [second, first]
        return
    with db.write() as conn:
        taken = choose(conn, Wanted(State.QUEUED, AGENT_QUEUE, None, hint=second, locking=True))
        assert taken is not None
        assert taken.id == second
        assert _claimed(db, first) == first


# --- by an index ---


@pytest.fixture
def crowd(db: Database) -> str:
    """20,000 queued jobs of many priorities, a thousand running ones with their runs, and one to look for."""
    wanted = factories.make_job(db, available_at=OLD)
    factories.clone_job(db, wanted, 20_000, priority="n % 7", available_at="1000000.0 + n", woken_at="9e9")
    running = running_job(db)
    factories.clone_job(db, running.job_id, 1_000, run_id="'other-' || n")
    with db.write() as conn:
        (run,) = conn.execute(sa.select(runs)).mappings()
        ended = [{**run, "id": f"ended-{n}", "ended_at": OLD, "priority": n % 7} for n in range(2_000)]
        conn.execute(sa.insert(runs), ended)
    return wanted


def test_a_claim_among_20_000_jobs_reads_an_index(db: Database, crowd: str) -> None:
    with recorded(db) as sent:
        row = claim_best(db, claim(), crowd)
    assert row is not None
    assert row["priority"] == 6
    found = plans(db, sent)
    assert "ix_jobs_claim" in found
    assert scans(found) == [], found


def test_the_regular_looks_of_a_worker_read_an_index(db: Database, crowd: str) -> None:
    """Twice a second and more, by every worker process: with 20,000 jobs none may read the table."""
    mine = [running_job(db).run_id for _ in range(3)]
    with recorded(db) as sent:
        assert set(read_wishes(db, mine)) == set(mine)
        assert expired_runs(db, 100) == []
        assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == []
    found = plans(db, sent)
    if not db.is_sqlite:  # a handful of live runs fits a page: reading it whole is right
        found = "\n".join(line for line in found.splitlines() if "Seq Scan on runs" not in line)
    assert [line for line in scans(found) if "jobs" in line] == [], found


# --- leases ---


def test_a_renewed_lease_is_a_whole_one(db: Database) -> None:
    run, other = running_job(db), running_job(db)
    expire_lease(db, run)
    assert expired_runs(db, 10) == [run]
    assert renew_leases(db, [run.run_id, other.run_id, "nobody's"], 60) == {run.run_id, other.run_id}
    assert expired_runs(db, 10) == []
    (row,) = list_runs(db, run.job_id)
    with db.read() as conn:
        left = row["lease_expires_at"] - conn.execute(sa.select(wall_clock())).scalar_one()
    assert 30 < left <= 60
    assert renew_leases(db, [], 60) == set()


def test_an_ended_run_is_not_renewed(db: Database) -> None:
    run = running_job(db)
    commit(db, run, move=move(State.QUEUED, Event.REQUEUE))
    assert renew_leases(db, [run.run_id], 60) == set()


def test_the_longest_dead_are_found_first(db: Database) -> None:
    found = [running_job(db) for _ in range(4)]
    for run, ago in zip(found, (5, 30, 10, 20), strict=True):
        expire_lease(db, run, ago)
    assert expired_runs(db, 3) == [found[1], found[3], found[2]]


class _CameBack(Exception):
    pass


def _take_back(db: Database, run: RunRef) -> str:
    """As the sweep does it, in small."""
    with job_tx(db, run.job_id) as job:
        worker = end_run_if_expired(job.conn, run)
        if worker is None:
            raise _CameBack
        job.update({"state": State.QUEUED, "run_id": None}, NewEvent(Event.LEASE_EXPIRED, "sweep"))
        return worker


def test_a_heartbeat_that_came_back_wins(db: Database) -> None:
    run = running_job(db)
    expire_lease(db, run)
    renew_leases(db, [run.run_id], 60)
    before = factories.job_now(db, run.job_id)
    with pytest.raises(_CameBack):
        _take_back(db, run)
    assert factories.job_now(db, run.job_id) == before
    commit(db, run, factories.said("still mine"))


def test_a_heartbeat_that_comes_too_late_loses(db: Database) -> None:
    run = running_job(db)
    expire_lease(db, run)
    assert _take_back(db, run) == factories.WORKER
    assert renew_leases(db, [run.run_id], 60) == set()
    with pytest.raises(LeaseLost):
        commit(db, run, factories.said("zombie"))
    with pytest.raises(_CameBack):  # a second sweep finds nothing to do
        _take_back(db, run)
    assert list_runs(db, run.job_id)[0]["outcome"] == "lost"


def test_heartbeat_and_sweep_at_once_leave_one_winner(db: Database) -> None:
    """A run is renewed exactly if it was not taken: both never happen, neither never happens."""
    won = {"heartbeat": 0, "sweep": 0}
    found = factories.running_jobs(db, 40)
    start = threading.Barrier(2)

    def sweep() -> list[bool]:
        taken = []
        for run in found:
            start.wait(30)
            try:
                _take_back(db, run)
                taken.append(True)
            except _CameBack:
                taken.append(False)
        return taken

    for run in found:
        expire_lease(db, run)
    with ThreadPoolExecutor(1) as pool:
        sweeping = pool.submit(sweep)
        renewed = []
        for run in found:
            start.wait(30)
            renewed.append(renew_leases(db, [run.run_id], 60) == {run.run_id})
        taken = sweeping.result(60)
    for run, kept, lost in zip(found, renewed, taken, strict=True):
        assert kept != lost, "both or neither"
        assert factories.job_now(db, run.job_id)["run_id"] == (run.run_id if kept else None)
        won["heartbeat" if kept else "sweep"] += 1
    assert sum(won.values()) == 40


def test_wishes_are_of_runs_that_still_own_their_job(db: Database) -> None:
    plain, asked, gone = running_job(db), running_job(db, pause_requested=True), running_job(db)
    factories.set_columns(db, asked.job_id, cancel_requested=True)
    commit(db, gone, move=move(State.QUEUED, Event.REQUEUE))
    wishes = read_wishes(db, [plain.run_id, asked.run_id, gone.run_id])
    assert set(wishes) == {plain.run_id, asked.run_id}
    assert (wishes[plain.run_id].pause, wishes[plain.run_id].cancel) == (False, False)
    assert (wishes[asked.run_id].pause, wishes[asked.run_id].cancel) == (True, True)


# --- wake-ups ---


def test_jobs_nobody_was_told_of_are_woken_once(db: Database) -> None:
    told = factories.make_job(db)
    forgotten = factories.make_job(db, woken_at=0, available_at=OLD)
    urgent = factories.make_job(db, woken_at=0, available_at=OLD + 5, priority=3)
    factories.make_job(db, woken_at=0, available_at=wall_clock() + 3600)
    factories.make_job(db, State.PAUSED, woken_at=0, available_at=OLD)
    running_job(db, woken_at=0, available_at=OLD)
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == [urgent, forgotten]
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == []
    factories.set_columns(db, told, woken_at=wall_clock() - 6, available_at=wall_clock() - 6)
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == [told]  # told long ago, and still waiting


def test_a_job_is_woken_when_it_becomes_due(db: Database) -> None:
    """It was told of before its time: that wake-up found nothing to do."""
    run = running_job(db)
    commit(db, run, move=move(State.QUEUED, Event.REQUEUE, delay=3600.0))
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == []
    factories.set_columns(db, run.job_id, available_at=wall_clock() - 0.01, woken_at=wall_clock() - 1)
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == [run.job_id]


def test_a_job_given_back_at_once_is_not_woken_twice(db: Database) -> None:
    run = running_job(db, woken_at=0)
    commit(db, run, move=move(State.QUEUED, Event.REQUEUE))
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == []


def test_the_best_are_woken_first_and_no_more_than_asked_for(db: Database) -> None:
    ids = [
        factories.make_job(db, woken_at=0, priority=number % 5, available_at=OLD - number)
        for number in range(30)
    ]
    best = sorted(range(30), key=lambda number: (-(number % 5), -number))
    taken: list[str] = []
    while found := take_unwoken_jobs(db, State.QUEUED, 5.0, 7):
        assert len(found) <= 7
        taken += found
    assert taken == [ids[number] for number in best]


def test_a_job_that_somebody_holds_is_left_for_the_next_time(db: Database) -> None:
    held, free = (factories.make_job(db, woken_at=0, available_at=OLD) for _ in range(2))
    if db.is_sqlite:
        return  # one writer at a time
    with job_tx(db, held):
        assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == [free]
    assert take_unwoken_jobs(db, State.QUEUED, 5.0, 10) == [held]


# --- turns ---


def test_owners_and_their_users_take_turns(db: Database) -> None:
    """One's thousand jobs and another's one: the one comes second; so too among the users of an owner."""
    for user, count in (("x", 20), ("y", 2), (None, 1)):
        factories.make_jobs(db, count, owner="ann", user=user, available_at=OLD)
    factories.make_jobs(db, 1, owner="bob", available_at=OLD + 9)
    factories.make_jobs(db, 2, owner="cid", user="x", available_at=OLD + 5)
    hint = factories.make_job(db, owner="ann", user="x", available_at=OLD)
    served = []
    while (row := claim_best(db, claim(), hint)) is not None:
        served.append((row["owner"], row["user"]))
    assert served[:8] == [
        ("ann", None), ("bob", None), ("cid", "x"), ("ann", "x"), ("cid", "x"), ("ann", "y"), ("ann", "x"), ("ann", "y"),
    ]  # fmt: skip
    assert len(served) == 27


def test_a_turn_is_kept_for_each_priority(db: Database) -> None:
    """Else whoever is served in between, at another priority, would always send the turn back to the same one."""
    for owner, priority, count in (("ann", 5, 3), ("bob", 0, 3), ("cid", 0, 3)):
        factories.make_jobs(db, count, owner=owner, priority=priority, available_at=OLD)
    later = factories.make_jobs(db, 2, owner="ann", priority=5, available_at=wall_clock() + 3600)
    served = [claim_best(db, claim(), None) for _ in range(4)]
    factories.set_columns(db, later[0], available_at=OLD)
    served += [claim_best(db, claim(), None) for _ in range(2)]
    factories.set_columns(db, later[1], available_at=OLD)
    served += [claim_best(db, claim(), None) for _ in range(2)]
    assert [row["owner"] for row in served if row] == ["ann"] * 3 + ["bob", "ann", "cid", "ann", "bob"]


def test_a_claim_walks_over_no_line(db: Database) -> None:
    """However long the lines of others are, due or not, and of jobs that have ended: in what the database reads."""
    work = DatabaseWork(db)
    counts = []
    for more in (40, 4_000):
        due, later = (
            factories.make_job(db, owner="ann", available_at=at) for at in (OLD, time.time() + 3600)
        )
        factories.clone_job(db, due, more, user_key="'u' || (n % 4)")
        factories.clone_job(db, later, more, owner="'bob'", user_key="'u' || (n % 4)")
        factories.make_job(db, owner="cid", available_at=OLD + 9)
        analyse(db)
        before = work.so_far()
        owners = {row["owner"] for _ in range(2) if (row := claim_best(db, claim(), None))}
        counts.append(work.so_far() - before)
        assert owners == {"ann", "cid"}
    assert counts[1] <= counts[0] * 2, f"{counts[0]} {work.unit} became {counts[1]}"
