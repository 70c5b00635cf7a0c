"""Ten-step no-op jobs, as users run them: submitted, woken through the broker, run by worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.views import list_jobs
from storage.registry import live_workers

JOBS = 100
WORKERS = 2
STEPS = 10
# Claim, the visit, then for each step the reply and its result (the last one ends the job), and the submit.
COMMITS_A_JOB = 3 + 2 * STEPS
_REPLIES = [f"calls: [{{read_comments: {{first: {step}}}}}]" for step in range(1, STEPS)] + [
    "transition: {next_step: COMPLETE, summary: done}"
]
SCRIPT = "\n".join(["movements:", "  work:", *(f"    - {reply}" for reply in _REPLIES)])


@dataclass(frozen=True, slots=True)
class TenStepJobs:
    """How many jobs a second went through."""

    jobs: int
    workers: int
    jobs_a_second: float
    commits_a_job: int


def ten_step_jobs(folder: Path) -> TenStepJobs:
    """Submits the jobs first, with no worker there; measures from the first claim to the last end."""
    folder.mkdir()
    script = folder / "script.yaml"
    script.write_text(SCRIPT)
    settings = Settings(data_dir=folder / "data", model=f"scripted:{script}")
    with open_installation(settings) as installation:
        for _ in range(JOBS):
            submit(installation, SubmitRequest("Do ten steps of nothing."), "bench")
        with workers(settings, installation):
            wait_for_all(installation)
        done = list_jobs(installation, None, ["succeeded"], limit=JOBS)
    assert len(done) == JOBS, f"{len(done)} of {JOBS} jobs succeeded"
    assert {view.steps for view in done} == {STEPS}
    seconds = max(view.completed_at or 0.0 for view in done) - min(view.started_at or 0.0 for view in done)
    return TenStepJobs(JOBS, WORKERS, JOBS / seconds, COMMITS_A_JOB)


@contextmanager
def workers(settings: Settings, installation: Installation) -> Iterator[None]:
    """Real worker processes, started by the public command."""
    env = os.environ | {"SOSTENUTO_DATA_DIR": str(settings.data_dir), "SOSTENUTO_MODEL": str(settings.model)}
    command = [str(Path(sys.executable).with_name("sostenuto")), "worker", "--concurrency", "8"]
    log = (settings.data_dir / "workers.log").open("wb")
    started = [subprocess.Popen(command, env=env, stdout=log, stderr=log) for _ in range(WORKERS)]
    try:
        yield
    finally:
        assert len(live_workers(installation.db, 60)) == WORKERS, "a worker did not start"
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)
        log.close()


def wait_for_all(installation: Installation, timeout: float = 300) -> None:
    """Returns when every job has ended."""
    deadline = time.monotonic() + timeout
    while list_jobs(installation, None, ["queued", "running"], limit=1):
        assert time.monotonic() < deadline, "the jobs did not end"
        time.sleep(0.2)
