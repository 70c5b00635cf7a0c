"""Limits on running jobs: never exceeded by anybody at once, held jobs passed over and let go, none of them starved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.database_work import DatabaseWork
from jobs.states import Event, State
from storage.engine import Database
from storage.limits import Hold, Key, LimitOf, let_go
from storage.models import jobs, runs
from storage.records import RunRef
from storage.runs import claim_best, take_unwoken_jobs
from tests import factories
from tests.factories import claim, commit, move
from tests.storage.children import run_children
from tests.storage.plans import analyse

OLD = 1_000_000.0


def limits(**given: int) -> LimitOf:
    """The same limit for every owner, user, repository or piece."""
    return lambda kind, _value: given.get(kind)


def claimed(db: Database, limit_of: LimitOf | None, hint: str | None = None) -> dict[str, Any] | None:
    return claim_best(db, claim(limit_of=limit_of), hint)


def ids(db: Database, limit_of: LimitOf) -> list[str]:
    """All that can be claimed now."""
    found = []
    while (row := claimed(db, limit_of)) is not None:
        found.append(row["id"])
    return found


def ended(db: Database, row: Mapping[str, Any], limit_of: LimitOf) -> list[str]:
    """The end of a run, and what it lets go."""
    commit(db, RunRef(row["run_id"], row["id"]), move=move(State.SUCCEEDED, Event.SUCCEED))
    return let_go(db, State.QUEUED, State.RUNNING, limit_of, row)


def most_at_once(db: Database, of: Callable[[Any], Any]) -> dict[Any, int]:
    """How many runs there were at once of each key, by when they were claimed and ended."""
    with db.read() as conn:
        rows = conn.execute(sa.select(runs, jobs).join(jobs, jobs.c.id == runs.c.job_id)).mappings().all()
    moments = sorted(
        (at, change, of(row))
        for row in rows
        for at, change in ((row["claimed_at"], 1), (row["ended_at"], -1))
        if of(row) is not None
    )
    now: dict[Any, int] = {}
    most: dict[Any, int] = {}
    for _, change, key in moments:
        now[key] = now.get(key, 0) + change
        most[key] = max(most.get(key, 0), now[key])
    return most


BODY = """
import random, time
from concurrent.futures import ThreadPoolExecutor
from tests.storage.test_limits import claimed, ended, limits
from storage.limits import let_go
LIMITS = limits(**args["limits"])
def work(number):
    dice = random.Random(args["seed"] * 10 + number)
    count, mine = 0, []
    deadline = time.monotonic() + 60
    while count_open(db) and time.monotonic() < deadline:
        row = claimed(db, LIMITS, dice.choice(args["ids"])) if len(mine) < 4 else None
        if row is not None:
            mine.append(row)
        elif mine:
            ended(db, mine.pop(dice.randrange(len(mine))), LIMITS)
            count += 1
        else:
            let_go(db, "queued", "running", LIMITS)
    return count
def count_open(db):
    import sqlalchemy as sa
    from storage.models import jobs
    with db.read() as conn:
        return conn.execute(sa.select(sa.func.count()).where(jobs.c.completed_at.is_(None))).scalar_one()
with ThreadPoolExecutor(4) as pool:
    print(json.dumps(sum(pool.map(work, range(4)))))
"""


def test_no_limit_is_exceeded_by_many_at_once(db: Database) -> None:
    """Two processes of four threads, jobs of every mixture of keys: not even for a moment, and all of them run."""
    made: list[str] = []
    for n in range(90):
        labels: dict[str, Any] = {"owner": f"o{n % 3}", "user": f"u{n % 2}" if n % 5 else None}
        labels |= {"repository": f"r{n % 4}" if n % 7 else None, "piece": ("general", "research")[n % 2]}
        made.append(factories.make_job(db, available_at=OLD + n, priority=n % 2, **labels))
    most = {"owner": 4, "user": 3, "repository": 1, "piece": 3}
    url = db.url.render_as_string(hide_password=False)
    given = [{"url": url, "limits": most, "seed": seed, "ids": made} for seed in (1, 2)]
    assert sum(run_children(BODY, given)) == len(made)
    keys: dict[str, Callable[[Any], Any]] = {
        "owner": lambda row: row["owner"],
        "user": lambda row: row["user"] and (row["owner"], row["user"]),
        "repository": lambda row: row["repository"],
        "piece": lambda row: row["piece"],
    }
    for kind, of in keys.items():
        reached = most_at_once(db, of)
        assert max(reached.values()) == most[kind] or kind in ("owner", "user"), reached
        assert max(reached.values()) <= most[kind], (kind, reached)


def test_a_full_key_passes_its_turn(db: Database) -> None:
    first, second = (factories.make_job(db, repository="o/r", available_at=OLD + n) for n in range(2))
    other = factories.make_job(db, repository="o/s", available_at=OLD + 9)
    free = factories.make_job(db, available_at=OLD + 10)
    one = limits(repository=1)
    assert ids(db, one) == [first, other, free]
    held = factories.job_now(db, second)
    assert (held["state"], Hold.of(held["held_for"])) == ("queued", Hold(Key("repository", "o/r"), 1))
    assert take_unwoken_jobs(db, State.QUEUED, 0.0, 10) == []  # nobody need be told of it
    assert let_go(db, State.QUEUED, State.RUNNING, one) == []
    assert ended(db, factories.job_now(db, other), one) == []
    assert ended(db, factories.job_now(db, first), one) == [second]
    assert ids(db, one) == [second]


def test_what_is_let_go_goes_by_priority_and_age(db: Database) -> None:
    one = limits(piece=1)
    running = factories.running_job(db)
    made = [
        factories.make_job(db, priority=priority, available_at=OLD + n)
        for n, priority in enumerate((0, 5, 0, 5, -1))
    ]
    assert ids(db, one) == []
    row = factories.job_now(db, running.job_id)
    order = []
    while gone := ended(db, row, one):
        order += gone
        (row,) = [found for found in [claimed(db, one)] if found is not None]
        assert row["id"] == gone[0]
    assert order == [made[1], made[3], made[0], made[2], made[4]]


def test_a_key_with_room_is_not_starved_by_jobs_that_another_limit_holds(db: Database) -> None:
    """A hundred of ann's wait for the repository; when it is free, ann herself is full: bob's goes."""
    one = limits(repository=1, owner=1)
    in_repository = factories.running_job(db, owner="zoe", repository="o/r")
    factories.make_jobs(db, 250, owner="ann", repository="o/r", available_at=OLD)
    bobs = factories.make_job(db, owner="bob", repository="o/r", available_at=OLD + 9)
    assert ids(db, one) == []
    factories.running_job(db, owner="ann")
    assert ended(db, factories.job_now(db, in_repository.job_id), one) == [bobs]
    assert ids(db, one) == [bobs]


@pytest.mark.parametrize("now", [None, 2])
def test_other_limits_let_go_what_the_old_ones_held(db: Database, now: int | None) -> None:
    factories.running_job(db, repository="o/r")
    made = factories.make_jobs(db, 3, repository="o/r", available_at=OLD)
    assert ids(db, limits(repository=1)) == []
    new: LimitOf = lambda _kind, _value: now  # noqa: E731
    gone = let_go(db, State.QUEUED, State.RUNNING, new)
    assert len(gone) == (3 if now is None else 1)
    assert set(ids(db, new)) == set(gone) <= set(made)
    told = [Hold.of(text).limit for job in made if (text := factories.job_now(db, job)["held_for"])]
    assert set(told) <= {1, now}


def test_names_that_look_like_more_are_names(db: Database) -> None:
    hostile = '"],["repository",9,"x"] \\ % \' é\u202e'
    factories.running_job(db, repository=hostile)
    job_id = factories.make_job(db, repository=hostile, available_at=OLD)
    assert ids(db, limits(repository=1)) == []
    held = Hold.of(factories.job_now(db, job_id)["held_for"])
    assert held == Hold(Key("repository", hostile), 1)


def test_held_jobs_are_not_walked_over(db: Database) -> None:
    """In what the database reads: once they are put aside, a claim does not see them; nor does a sweep count them."""
    work = DatabaseWork(db)
    one = limits(repository=1)
    factories.running_job(db, repository="o/r")
    counts = []
    for more in (150, 4_000):
        factories.clone_job(db, factories.make_job(db, repository="o/r", available_at=OLD), more)
        assert ids(db, one) == []
        last = factories.make_job(db, available_at=OLD + 9)
        analyse(db)
        before = work.so_far()
        assert ids(db, one) == [last]
        assert let_go(db, State.QUEUED, State.RUNNING, one) == []
        counts.append(work.so_far() - before)
    assert counts[1] <= counts[0] * 2, f"{counts[0]} {work.unit} became {counts[1]}"
