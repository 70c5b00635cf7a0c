"""The sweep: nobody is indispensable to it, and it takes nothing from the living."""

from __future__ import annotations

import itertools

import sqlalchemy as sa

from jobs.states import State
from storage.models import locks, workers
from tests.resilience.bench import Bench
from tests.waiting import wait_until
from worker.sweep import LOCK, Calm


def test_another_process_sweeps_when_the_sweeper_is_killed(bench: Bench) -> None:
    started = [bench.start(SOSTENUTO_LEASE_SECONDS="2") for _ in range(2)]

    def sweeper() -> int | None:
        holder = (
            sa.select(workers.c.pid).join(locks, locks.c.holder == workers.c.name).where(locks.c.name == LOCK)
        )
        with bench.installation.db.read() as conn:
            return conn.execute(holder).scalar_one_or_none()

    first = wait_until(sweeper, 60, "one of them sweeps")
    (holder,) = [worker for worker in started if worker.pid == first]
    holder.kill()
    job_id = bench.submit_silently()  # only a sweep finds it
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    assert sweeper() != first


class Clocks:
    """A wall clock and a monotonic one, as the test sets them."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0

    def calm(self) -> Calm:
        return Calm(15, 1, wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def pass_time(self, seconds: float, *, wall: float = 0.0) -> None:
        self.monotonic += seconds
        self.wall += seconds + wall


def test_calm_holds_from_the_start_and_while_time_passes() -> None:
    clocks = Clocks()
    calm = clocks.calm()
    for _ in range(1000):
        assert calm.holds()
        clocks.pass_time(1, wall=0.01)  # a slow drift is no jump


def test_a_jump_of_the_wall_clock_disturbs_it_for_one_lease() -> None:
    for jump in (3600.0, -3600.0, 8.0):
        clocks = Clocks()
        calm = clocks.calm()
        clocks.pass_time(1, wall=jump)
        answers = []
        for _ in range(17):
            answers.append(calm.holds())
            clocks.pass_time(1)
        assert [key for key, _ in itertools.groupby(answers)] == [False, True]
        assert answers.count(False) == 15


def test_a_small_step_of_the_wall_clock_does_not() -> None:
    clocks = Clocks()
    calm = clocks.calm()
    clocks.pass_time(1, wall=7)
    assert calm.holds()


def test_a_frozen_database_disturbs_it() -> None:
    """Its answer took a minute: the workers' heartbeats waited as long, and come any moment."""
    clocks = Clocks()
    calm = clocks.calm()
    assert calm.holds()
    clocks.pass_time(60)
    assert not calm.holds()
    for _ in range(14):
        clocks.pass_time(1)
        assert not calm.holds()
    clocks.pass_time(1)
    assert calm.holds()


def test_a_failing_database_disturbs_it_until_one_lease_after_the_last_failure() -> None:
    clocks = Clocks()
    calm = clocks.calm()
    for _ in range(30):
        clocks.pass_time(1)
        calm.disturb()
    assert not calm.holds()
    for _ in range(14):
        clocks.pass_time(1)
        assert not calm.holds()
    clocks.pass_time(1)
    assert calm.holds()
