"""How soon a job goes on elsewhere, once its worker was killed or told to stop in the middle of a model call."""

from __future__ import annotations

import signal
import time
from contextlib import closing

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Table, Target
from benchmarks.model_server import ModelServer
from benchmarks.ours import LIKE_PEERS, Ours, ours
from storage.runs import list_runs
from tests.servers.workers import CommandProcess
from tests.waiting import wait_until

BEYOND_LEASE, IN_ORDER = 2.0, 1.0
OTHERS = (
    "What others do, by their documentation: DBOS takes up its workflows when the same executor starts again (another one "
    "only with its Conductor); LangGraph's library resumes a thread when somebody invokes it again; Celery with late acks "
    "hands a task out again after the broker's visibility timeout, an hour by default."
)


def recovery(bench: Bench) -> Table:
    """From the signal to the next run's claim by another process, which is idle."""
    lease = bench.sizes.lease_seconds
    figures = []
    with closing(ModelServer(bench)) as model:
        env = {
            "SOSTENUTO_MODEL": "1-0-1-held", **model.env,
            "SOSTENUTO_LEASE_SECONDS": str(lease), "SOSTENUTO_GRACE_SECONDS": "0.2", **LIKE_PEERS,
        }  # fmt: skip
        with ours(bench, "sqlite", env) as system:
            (worker,) = system.start_workers(1, 1)
            ways = [
                (signal.SIGTERM, "told to stop, with 0.2 s of grace", IN_ORDER),
                (signal.SIGKILL, f"killed; the lease is {lease:g} s", lease + BEYOND_LEASE),
            ]
            for number, name, limit in ways[: 1 if bench.sizes.few else None]:
                taken = []
                for _ in range(bench.sizes.kills):
                    seconds, worker = _recover(system, model, worker, number)
                    taken.append(seconds)
                target = Target.at_most(max(taken), limit, f"≤ {limit:g} s")
                figures.append(Figure(f"the worker is {name}", "s", taken, target=target))
    return Table("A job goes on elsewhere after its worker", figures, [OTHERS])


def _recover(
    system: Ours, model: ModelServer, doomed: CommandProcess, number: signal.Signals
) -> tuple[float, CommandProcess]:
    """Seconds from the signal to the claim, and the process that claimed."""
    job_id = system.submit()
    model.wait_for_held(1)
    (heir,) = system.start_workers(1, 1)
    began = time.time()
    doomed.send(number)
    db = system.installation.db
    wait_until(lambda: len(list_runs(db, job_id)) == 2, 120, "the job is claimed again")
    model.wait_for_held(2)  # the dead run's call is one of them
    model.release()
    system.wait_for_all()
    return float(list_runs(db, job_id)[1]["claimed_at"]) - began, heir
