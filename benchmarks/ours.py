"""Sostenuto as users run it: jobs that are submitted to a data folder, and real worker processes that run them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.bench import Bench
from benchmarks.processes import environment
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.settings_sources import load_settings
from jobs.submit import SubmitRequest, submit
from jobs.views import list_jobs
from tests.servers.workers import CommandProcess

OWNER = "bench"
LIKE_PEERS = {  # what the other systems do not do either
    "SOSTENUTO_CONTEXT_FINAL_SUMMARY_ENABLED": "false",
    "SOSTENUTO_EXCHANGES_KEEP_DAYS": "0",
}
UNFINISHED = ["queued", "running", "compressing"]


@dataclass
class Ours:
    """An installation with its worker processes."""

    bench: Bench
    installation: Installation
    env: dict[str, str]
    workers: list[CommandProcess] = field(default_factory=list)

    def start_workers(self, processes: int, concurrency: int, **env: str) -> list[CommandProcess]:
        """Returns the new ones when all take jobs."""
        arguments = ("--concurrency", str(concurrency), "--log-level", "info")
        started = [self.bench.commands(*arguments, env=self.env | env) for _ in range(processes)]
        for worker in started:
            worker.wait_for_log("is ready: queues")
        self.workers += started
        return started

    def submit(self, instruction: str = "Do some steps of nothing.", **more: str) -> str:
        return submit(self.installation, SubmitRequest(instruction, **more), OWNER).job.id  # type: ignore[arg-type]  # texts only

    def wait_for_all(self, timeout: float = 600) -> None:
        """Returns when every job has ended; the clock that matters is the jobs' own."""
        deadline = time.monotonic() + timeout
        while list_jobs(self.installation, OWNER, UNFINISHED, limit=1):
            assert time.monotonic() < deadline, f"the jobs did not end:\n{self.workers[0].log()[-2000:]}"
            time.sleep(0.1)  # asking takes CPU, too

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers]

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers.clear()


@contextmanager
def ours(bench: Bench, backend: str, env: Mapping[str, str]) -> Iterator[Ours]:
    """An installation on a fresh database, with nobody at work in it."""
    folder = bench.new_folder("data")
    given = {"SOSTENUTO_DATA_DIR": str(folder), **env}
    given["SOSTENUTO_DATABASE_URL"] = bench.new_database(backend, migrated=True)
    settings: Settings = load_settings(environment(**given), folder)
    with open_installation(settings) as installation:
        system = Ours(bench, installation, given)
        try:
            yield system
        finally:
            system.stop_workers()
