"""The workers and what they have before them: who runs what, what waits, which endpoints rest. For API and page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs.installation import Installation
from jobs.views import worker_state
from storage import queues, registry
from storage.queues import Cooldown, LiveRun, QueueDepth

FRESH_SECONDS = 60.0  # a worker that was not seen for so long is not shown


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """A worker process: what it published, and its runs. `runs` are of jobs that the asker may see, `busy` is all."""

    row: dict[str, Any]
    runs: list[LiveRun]
    busy: int

    @property
    def draining(self) -> bool:
        """It finishes what it has, and takes nothing new."""
        return worker_state(self.row) == "draining"

    @property
    def hidden(self) -> int:
        """Runs of others' jobs."""
        return max(0, self.busy - len(self.runs))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that the page of workers shows. `lost`: runs whose worker no longer answers, until the sweep comes."""

    workers: list[WorkerNow]
    lost: list[LiveRun]
    queues: list[QueueDepth]
    cooldowns: list[Cooldown]

    @property
    def slots(self) -> int:
        return sum(worker.row["concurrency"] for worker in self.workers)

    @property
    def busy(self) -> int:
        return sum(worker.busy for worker in self.workers)


def workers_now(
    installation: Installation, owner: str | None, fresh_seconds: float = FRESH_SECONDS
) -> tuple[list[WorkerNow], list[LiveRun]]:
    """The live workers with the runs of the owner's jobs (None: of all), and the runs of workers that are gone."""
    runs = queues.live_runs(installation.db, owner)
    busy = queues.runs_by_worker(installation.db)
    rows = registry.live_workers(installation.db, fresh_seconds)
    found = [
        WorkerNow(row, [run for run in runs if run.worker == row["name"]], busy.get(row["name"], 0))
        for row in rows
    ]
    known = {row["name"] for row in rows}
    return found, [run for run in runs if run.worker not in known]


def fleet_now(installation: Installation, owner: str | None) -> Fleet:
    """The whole picture, as of now; of runs, those of the owner's jobs (None: of all)."""
    workers, lost = workers_now(installation, owner)
    return Fleet(workers, lost, queues.queue_depths(installation.db), queues.list_cooldowns(installation.db))
