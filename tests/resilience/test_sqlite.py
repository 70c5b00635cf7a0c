"""One SQLite file under many processes, and on a disk that is full."""

from __future__ import annotations

import resource
from pathlib import Path

from jobs.states import State
from jobs.views import list_jobs
from tests.resilience.bench import COMPLETE, Bench, bash, story
from tests.waiting import wait_until

PROCESSES, JOBS = 8, 64
SCRIPT = """
movements:
  work:
    - calls: [{Glob: {pattern: "*"}}]
    - calls: [{Glob: {pattern: "*"}}]
    - transition: {next_step: COMPLETE, summary: done}
"""


def test_eight_processes_on_one_file(sqlite_bench: Bench, tmp_path: Path) -> None:
    """`database is locked` is never told to anybody."""
    bench = sqlite_bench
    script = tmp_path / "script.yaml"
    script.write_text(SCRIPT)
    bench.environment["SOSTENUTO_MODEL"] = f"scripted:{script}"
    workers = [bench.commands("--concurrency", "4", env=bench.env()) for _ in range(PROCESSES)]
    job_ids = [bench.submit(f"Number {number}.") for number in range(JOBS)]
    for job_id in job_ids:
        assert bench.wait_ended(job_id, 120).state == State.SUCCEEDED
        bench.assert_sound(job_id)
        assert bench.deaths(job_id) == 0
    assert len(list_jobs(bench.installation, None, ["succeeded"], limit=JOBS + 1)) == JOBS
    for worker in workers:
        assert "locked" not in worker.log()
        assert "Traceback" not in worker.log()
        assert worker.returncode is None


def test_a_full_disk(sqlite_bench: Bench) -> None:
    """The worker may write no file any more: the job waits, says who has it, and goes on when there is room."""
    bench = sqlite_bench
    bench.endpoint.mind = story(bash("echo done >> output/effects.txt"), bash("true"), COMPLETE)
    gate = bench.endpoint.hold()
    worker = bench.start(SOSTENUTO_LEASE_SECONDS="2")
    job_id = bench.submit()
    gate.wait_held()
    unlimited = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
    gate.release()
    bench.endpoint.wait_aborted(0)
    wait_until(lambda: bench.endpoint.calls(job_id + "/*") >= 1, 60, "the model was asked")

    view = bench.view(job_id)
    assert (view.state, view.error) == (State.RUNNING, None)
    assert view.worker is not None
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, unlimited)

    ended = bench.wait_ended(job_id)
    assert ended.state == State.SUCCEEDED
    assert bench.deaths(job_id) == 0
    bench.assert_sound(job_id)
    assert worker.returncode is None
