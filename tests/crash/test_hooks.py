"""Hooks across crashes: the commit that ends a job carries the calls to make; whoever dies, each is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.states import State
from storage.models import hook_calls
from tests.crash.bench import CrashBench, died_by_kill
from tests.hook_example import install_example
from tests.waiting import wait_until

# Where the first worker dies, and how often the one end is told in all.
HOOK_POINTS = {"end.committing": 1, "end.committed": 1, "hook.called": 2}


@pytest.fixture
def hook_env(tmp_path: Path) -> dict[str, str]:
    """The example package, installed for the workers alone; slices long enough that a job has one end."""
    site = tmp_path / "site"
    site.mkdir()
    install_example(site)
    return {
        "PYTHONPATH": str(site),
        "JOB_LOG": str(tmp_path / "jobs.jsonl"),
        "SOSTENUTO_HOOKS_COMPLETION": "job-log",
        "SOSTENUTO_HOOKS_TIMEOUT": "1",
        "SOSTENUTO_SLICE_STEPS": "100",
        "SOSTENUTO_LEASE_SECONDS": "4",
    }


def told(env: dict[str, str]) -> list[dict[str, Any]]:
    log = Path(env["JOB_LOG"])
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def calls_left(bench: CrashBench) -> int:
    with bench.installation.db.read() as conn:
        return conn.execute(sa.select(sa.func.count()).select_from(hook_calls)).scalar_one()


@pytest.mark.parametrize("point", HOOK_POINTS)
def test_an_end_is_told_although_a_worker_dies_at(
    point: str, bench: CrashBench, hook_env: dict[str, str]
) -> None:
    """Killed right after the commit, nobody remembers that a hook was to be called: but the database does."""
    job_id = bench.submit()
    died_by_kill(bench.worker(crash_at=point, env=hook_env))
    before = len(told(hook_env))
    assert before == (point == "hook.called")
    ended = bench.view(job_id).state == State.SUCCEEDED
    assert calls_left(bench) == ended  # not of an end that only gave the job back, as under a lost lease
    bench.worker(env=hook_env)

    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    wait_until(
        lambda: len(told(hook_env)) > before and not calls_left(bench), 60, "the call is made and noted"
    )

    lines = told(hook_env)
    assert len(lines) == HOOK_POINTS[point]
    assert {(line["id"], line["state"], line["result"]) for line in lines} == {
        (job_id, "succeeded", "all done")
    }
    assert len({line["event_id"] for line in lines}) == 1
    bench.assert_sound(job_id)


def test_an_end_made_without_a_worker_is_told_by_the_next_one(
    bench: CrashBench, hook_env: dict[str, str]
) -> None:
    """`sostenuto cancel` of a waiting job: its process calls no hook, a worker's sweep does."""
    job_id = bench.submit()
    done = bench.commands.run("cancel", job_id, env=bench.env() | hook_env)
    assert done.wait() == 0, done.log()
    assert (told(hook_env), calls_left(bench)) == ([], 1)
    bench.worker(env=hook_env)
    wait_until(lambda: not calls_left(bench), 60, "the call is made")
    [line] = told(hook_env)
    assert (line["id"], line["state"]) == (job_id, "cancelled")
