"""What processes tell each other: exclusive leases, cooldowns, workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from storage import registry
from storage.engine import Database, wall_clock
from storage.models import cooldowns, locks, workers
from tests.storage.children import run_children


def _end_lease(db: Database, name: str) -> None:
    with db.write() as conn:
        conn.execute(sa.update(locks).where(locks.c.name == name).values(expires_at=wall_clock() - 1))


def test_a_lease_has_one_holder_until_it_ends_or_is_dropped(db: Database) -> None:
    assert registry.take_lock(db, "sweep", "a", 60)
    assert registry.take_lock(db, "sweep", "a", 60)  # renewed
    assert not registry.take_lock(db, "sweep", "b", 60)
    assert registry.take_lock(db, "other", "b", 60)
    registry.drop_lock(db, "sweep", "b")  # not b's to drop
    assert not registry.take_lock(db, "sweep", "b", 60)
    registry.drop_lock(db, "sweep", "a")
    assert registry.take_lock(db, "sweep", "b", 60)
    _end_lease(db, "sweep")
    assert registry.take_lock(db, "sweep", "a", 60)
    assert not registry.take_lock(db, "sweep", "b", 60)


@pytest.mark.parametrize("found", ["no row", "an ended lease"])
def test_of_many_threads_one_takes_the_lease(db: Database, found: str) -> None:
    for round_ in range(15):
        name = f"lock-{round_}"
        if found == "an ended lease":
            registry.take_lock(db, name, "dead", 60)
            _end_lease(db, name)
        start = threading.Barrier(6)

        def take(holder: int, name: str = name, start: threading.Barrier = start) -> bool:
            start.wait(30)
            return registry.take_lock(db, name, str(holder), 60)

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(take, range(6))) == 1


def test_of_several_processes_one_takes_the_lease(db: Database) -> None:
    body = """
from storage import registry
print(json.dumps([registry.take_lock(db, f"lock-{n}", args["holder"], 60) for n in range(30)]))
"""
    url = db.url.render_as_string(hide_password=False)
    taken = run_children(body, [{"url": url, "holder": str(number)} for number in range(3)])
    assert [sum(column) for column in zip(*taken, strict=True)] == [1] * 30


def _until(db: Database, endpoint: str) -> float:
    return registry.active_cooldowns(db)[endpoint]


def test_a_longer_cooldown_stays(db: Database) -> None:
    assert registry.active_cooldowns(db) == {}
    registry.cool_down(db, "e", 100, "told so")
    registry.cool_down(db, "e", 10, "told less")
    assert 90 < _until(db, "e") <= 100
    registry.cool_down(db, "e", 200, "told more")
    assert 190 < _until(db, "e") <= 200
    registry.cool_down(db, "past", -1, "over")
    assert set(registry.active_cooldowns(db)) == {"e"}


@contextmanager
def _before_insert(db: Database, act: Any) -> Iterator[None]:
    """Lets `act` happen between what a thread has read and its INSERT INTO cooldowns."""
    done = threading.Event()
    me = threading.get_ident()

    def hook(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if (
            statement.startswith("INSERT INTO cooldowns")
            and threading.get_ident() == me
            and not done.is_set()
        ):
            done.set()
            act()

    sa.event.listen(db.engine, "before_cursor_execute", hook)
    yield
    sa.event.remove(db.engine, "before_cursor_execute", hook)
    assert done.is_set()


def test_a_longer_cooldown_that_arrives_at_the_same_time_stays(db: Database) -> None:
    """Check-then-write: the shorter one had seen no row, and overwrote the longer one committed meanwhile."""
    if db.is_sqlite:  # the second writer waits for the first: nothing to interleave
        registry.cool_down(db, "e", 500, "long")
        registry.cool_down(db, "e", 5, "short")
    else:

        def meanwhile() -> None:
            thread = threading.Thread(target=registry.cool_down, args=(db, "e", 500, "long"))
            thread.start()
            thread.join(30)

        with _before_insert(db, meanwhile):
            registry.cool_down(db, "e", 5, "short")
    assert _until(db, "e") > 400


def test_an_endpoints_own_words_may_hold_anything(db: Database) -> None:
    """Postgres refuses NUL: the 429 of a server that sent one became an internal error."""
    registry.cool_down(db, "http://x m\0del", 60, "slow down\0 \ud83d")
    with db.read() as conn:
        assert conn.execute(sa.select(cooldowns.c.reason)).scalar_one() == "slow down␀ \ufffd"
    assert list(registry.active_cooldowns(db)) == ["http://x m␀del"]


def _worker(name: str) -> dict[str, Any]:
    return {
        "name": name, "host": "h", "pid": 1, "queues": ["agent"], "concurrency": 4, "version": "1",
        "sandbox": "bwrap", "tools": ["Read"],
    }  # fmt: skip


def test_live_workers_are_those_seen_of_late_and_not_stopped(db: Database) -> None:
    for name in ("a", "b", "c"):
        registry.register_worker(db, _worker(name))
    registry.worker_seen(db, "b", stopped=True)
    with db.write() as conn:
        conn.execute(sa.update(workers).where(workers.c.name == "c").values(seen_at=time.time() - 100))
    live = registry.live_workers(db, 30)
    assert [(found["name"], found["queues"], found["tools"]) for found in live] == [
        ("a", ["agent"], ["Read"])
    ]
    registry.worker_seen(db, "c")
    assert [found["name"] for found in registry.live_workers(db, 30)] == ["a", "c"]
    registry.register_worker(db, _worker("b"))  # it came back under its name
    assert [found["name"] for found in registry.live_workers(db, 30)] == ["a", "b", "c"]


def test_a_worker_not_seen_for_a_week_is_forgotten(db: Database) -> None:
    registry.register_worker(db, _worker("old"))
    with db.write() as conn:
        conn.execute(sa.update(workers).values(seen_at=time.time() - registry.FORGET_WORKERS_SECONDS - 60))
    registry.register_worker(db, _worker("new"))
    with db.read() as conn:
        assert conn.execute(sa.select(workers.c.name)).scalars().all() == ["new"]
