"""A worker that lies still for longer than its lease and then goes on: another one has finished its job meanwhile."""

from __future__ import annotations

import os
import signal

import pytest

from jobs.lifecycle import cancel
from jobs.states import State
from tests.crash.bench import is_stopped
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, running, story
from tests.servers.workers import CommandProcess
from tests.waiting import wait_until

LEASE = "2"
APPEND = "echo done >> output/effects.txt"

# Where the zombie lies still, and how often the unrepeatable command took effect before.
MOMENTS = {
    "model.replied": 1,  # a reply in hand, not committed
    "tool.ended": 1,  # a tool's result in hand
    "reply.committed:2": 1,  # right before its finish
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_zombie_writes_nothing(moment: str, bench: Bench) -> None:
    """Its checkpoint, its tool's result and its finish are refused: not one row of the job differs afterwards."""
    bench.endpoint.mind = story(bash(APPEND), COMPLETE)
    zombie, job_id = stopped_at(bench, moment)
    rescuer = bench.start(SOSTENUTO_LEASE_SECONDS=LEASE)
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    rescuer.kill()
    before = bench.rows(job_id)

    os.kill(zombie.pid, signal.SIGCONT)

    # Its one slot is free for the next job only when it has done all it can with the first.
    assert bench.wait_ended(bench.submit()).state == State.SUCCEEDED
    assert bench.rows(job_id) == before
    assert "no longer owns job" in zombie.log()
    assert bench.effects(job_id) == MOMENTS[moment]
    bench.assert_sound(job_id)


def test_a_zombies_command_ends_when_it_wakes(bench: Bench) -> None:
    """Frozen in mid-Bash, its command running on: awake, the worker kills it and writes nothing."""
    command, words = endless_command()
    bench.endpoint.mind = story(bash(command), COMPLETE)
    zombie = bench.start("--concurrency", "1", SOSTENUTO_LEASE_SECONDS=LEASE, SOSTENUTO_SWEEP_SECONDS="3600")
    job_id = bench.submit()
    wait_until(lambda: running(words), 60, "the command runs")
    freeze(bench, zombie)
    rescuer = bench.start(SOSTENUTO_LEASE_SECONDS=LEASE)
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    rescuer.kill()
    before = bench.rows(job_id)
    assert running(words)
    bench.endpoint.mind = story(COMPLETE)

    os.kill(zombie.pid, signal.SIGCONT)

    wait_until(lambda: not running(words), 60, "the zombie's command is dead")
    assert bench.wait_ended(bench.submit()).state == State.SUCCEEDED
    assert bench.rows(job_id) == before


def stopped_at(bench: Bench, moment: str) -> tuple[CommandProcess, str]:
    """A worker that has stopped itself there, and its job.

    Another of its threads may be inside a transaction at that moment; a frozen writer blocks SQLite for everybody, as
    docs/crash-safety.md says. That is not what these tests are about, so then it is tried again.
    """
    name, _, count = moment.partition(":")
    for _ in range(6):
        zombie = bench.start(
            "--concurrency",
            "1",
            SOSTENUTO_CRASH_POINT=f"{name}:{count or 1}:stop",
            SOSTENUTO_LEASE_SECONDS=LEASE,
            SOSTENUTO_SWEEP_SECONDS="3600",
        )
        job_id = bench.submit()
        wait_until(lambda: is_stopped(zombie.pid), 60, "the zombie lies still")  # noqa: B023 - called at once
        if bench.holds_no_lock():
            return zombie, job_id
        zombie.kill()
        cancel(bench.installation, job_id, None, "test")  # the rescuer's sweep does it
    raise AssertionError("it always stopped inside a transaction")


def freeze(bench: Bench, worker: CommandProcess) -> None:
    """SIGSTOP to the worker alone, outside any transaction."""

    def frozen() -> bool:
        os.kill(worker.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(worker.pid), 60, "the worker lies still")
        if bench.holds_no_lock():
            return True
        os.kill(worker.pid, signal.SIGCONT)
        return False

    wait_until(frozen, 60, "the worker is frozen outside a transaction")
