"""Many jobs, several submitters, several workers, real brokers: each job runs exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.views import list_events, list_jobs
from jobs.workspace import workspace_path
from storage.runs import list_runs
from tests.servers.workers import CommandFactory
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SUBMITTERS = 4
EACH = 25
JOBS = SUBMITTERS * EACH
SCRIPT = """
movements:
  work:
    - calls: [{Bash: {command: echo once >> output/count.txt}}]
    - transition: {next_step: verify, summary: counted}
  verify:
    - transition: {next_step: COMPLETE, summary: "{{ instruction }}"}
"""


@pytest.fixture
def installation(migrated_url: str, data_dir: Path) -> Iterator[Installation]:
    (data_dir / "script.yaml").write_text(SCRIPT)
    settings = Settings(
        database_url=migrated_url, data_dir=data_dir, model=f"scripted:{data_dir / 'script.yaml'}"
    )
    with open_installation(settings) as opened:
        yield opened


def environment(installation: Installation, broker: str | None) -> dict[str, str]:
    settings = installation.settings
    env = {
        "SOSTENUTO_DATABASE_URL": settings.database_url,
        "SOSTENUTO_DATA_DIR": str(settings.data_dir),
        "SOSTENUTO_MODEL": str(settings.model),
    }
    return env if broker is None else env | {"SOSTENUTO_BROKER_URL": broker}


@pytest.mark.parametrize("server", ["valkey_server", "redis_server"])
@pytest.mark.timeout(600)
def test_a_hundred_jobs_of_four_submitters_on_two_workers(
    server: str, installation: Installation, worker_process: CommandFactory, request: pytest.FixtureRequest
) -> None:
    """Each succeeds exactly once, in one run, with one effect."""
    env = environment(installation, request.getfixturevalue(server).url)
    for _ in range(2):
        worker_process("--concurrency", "8", env=env)
    command = [sys.executable, "-m", "tests.acceptance.submitter", str(EACH)]
    submitters = [subprocess.Popen(command, cwd=ROOT, env=os.environ | env) for _ in range(SUBMITTERS)]
    assert [submitter.wait(300) for submitter in submitters] == [0] * SUBMITTERS

    def finished() -> bool:
        return len(list_jobs(installation, None, [State.SUCCEEDED], limit=JOBS + 1)) == JOBS

    wait_until(finished, 500, "all jobs succeed")

    for job in list_jobs(installation, None, limit=JOBS + 1):
        runs = list_runs(installation.db, job.id)
        assert len([run for run in runs if run["kind"] == "agent"]) == 1  # its summary may have begun
        ends = [event for event in list_events(installation, job.id) if event.to_state == State.SUCCEEDED]
        assert len(ends) == 1
        count = workspace_path(installation.settings.data_dir, job.id) / "output" / "count.txt"
        assert count.read_text() == "once\n"


def test_a_job_submitted_while_no_worker_runs_starts_with_the_first_one(
    installation: Installation, worker_process: CommandFactory
) -> None:
    """With the embedded broker, which is not there either when the job is submitted."""
    receipt = submit(installation, SubmitRequest("Wait for a worker."), "local")
    assert (receipt.created, receipt.woken) == (True, False)

    worker_process(env=environment(installation, None))

    wait_until(lambda: list_jobs(installation, None, [State.SUCCEEDED]), 120, "the job runs")
