"""Machine instructions of a ten-step job, counted by callgrind: nearly the same on a busy machine as on an idle one.

`python -m benchmarks.instructions FOLDER URL SUBMITTED RUN` is what is counted: it submits so many jobs and runs so many
of them, in one thread. Differences of such runs leave out what Python and the imports take.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.bench import BACKENDS, NAMES, ROOT, Bench, NotInstalled
from benchmarks.contestants import scripted_steps
from benchmarks.contests import STEPS
from benchmarks.figures import Figure, Table
from benchmarks.processes import environment
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from worker.process import WorkerProcess
from worker.slices import run_slice

WARM = 8  # jobs after which everything that is made once is made
MORE = 16  # jobs that are counted


def instructions(bench: Bench) -> Table:
    """Raises NotInstalled where there is no valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotInstalled("there is no valgrind: Debian's package of that name has it")
    figures = []
    for backend in BACKENDS[: 1 if bench.sizes.few else None]:
        more = 1 if bench.sizes.few else MORE
        runs = ((1, 1), (WARM, WARM), (WARM + more, WARM), (WARM + more, WARM + more))
        first, *counted = [_command(bench, backend, jobs) for jobs in runs]
        _run(first)  # leaves the bytecode of all that is imported
        callgrind = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        with ThreadPoolExecutor() as pool:
            told = pool.map(_run, [callgrind + command for command in counted])
        least, submitted, all_run = (int(re.findall(r"Collected : (\d+)", text)[-1]) for text in told)
        for what, count in (("to submit", submitted - least), ("to run", all_run - submitted)):
            figures.append(Figure(f"{NAMES[backend]}: {what} it", "M", [count / more / 1e6]))
    note = "Without the broker's part, the database server's, and what the kernel does."
    return Table(f"Instructions for a job of {STEPS} steps that do nothing (callgrind)", figures, [note])


def _command(bench: Bench, backend: str, jobs: tuple[int, int]) -> list[str]:
    """Of a process that submits and runs so many jobs on a database of its own."""
    where = str(bench.new_folder("counted")), bench.new_database(backend, migrated=True)
    return [sys.executable, "-m", "benchmarks.instructions", *where, *map(str, jobs)]


def _run(command: list[str]) -> str:
    """What it writes to its standard error."""
    env = environment(PYTHONHASHSEED="0")
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


class _NoBroker:
    """Wake-ups that go nowhere: the jobs are run by hand."""

    def send(self, *_: Any) -> None: ...

    def send_and_wait(self, *_: Any) -> bool:
        return True

    def close(self) -> None: ...


def _work(folder: Path, url: str, submitted: int, run: int) -> None:
    settings = Settings.model_validate({
        "data_dir": folder, "database_url": url, "model": f"scripted:{scripted_steps(folder, STEPS)}",
        "context_window": 1_000_000, "context": {"final_summary": {"enabled": False}}, "exchanges": {"keep_days": 0},
    })  # fmt: skip
    with open_installation(settings) as installation:
        vars(installation)["wakeups"] = _NoBroker()
        process = WorkerProcess(installation, "bench@localhost", ["agent"], None)
        ids = [_submit(installation) for _ in range(submitted)]
        for job_id in ids[:run]:
            assert run_slice(process, job_id) == job_id


def _submit(installation: Installation) -> str:
    return submit(installation, SubmitRequest("Do some steps of nothing."), "bench").job.id


if __name__ == "__main__":
    _work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
