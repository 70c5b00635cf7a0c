"""Many agents that wait for their models: how near the ideal they stay, what each takes in memory, whether leases hold."""

from __future__ import annotations

import time
from contextlib import closing

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Table, Target
from benchmarks.model_server import ModelServer
from benchmarks.ours import LIKE_PEERS, Ours, ours
from benchmarks.processes import cpu_seconds, memory_mb
from jobs.views import list_jobs
from storage.runs import list_runs

CHUNKS_A_SECOND = 20
LEAST_OF_IDEAL, MOST_MB = 0.85, 400.0


def waiting(bench: Bench) -> Table:
    """All jobs begin to stream at once, step by step, so that each step's commits come together: the worst case."""
    sizes = bench.sizes
    model_name = f"{sizes.waiting_steps}-{sizes.stream_seconds}-{max(1, round(CHUNKS_A_SECOND * sizes.stream_seconds))}-held"
    with closing(ModelServer(bench)) as model:
        env = {"SOSTENUTO_MODEL": model_name, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        with ours(bench, "sqlite", env | LIKE_PEERS) as system:
            return _measure(bench, system, model)


def _measure(bench: Bench, system: Ours, model: ModelServer) -> Table:
    sizes, processes = bench.sizes, bench.sizes.processes
    jobs, steps, ideal = sizes.waiting_jobs, sizes.waiting_steps, sizes.waiting_steps * sizes.stream_seconds
    system.start_workers(processes, -(-jobs // processes))
    idle = memory_mb(system.pids())
    ids = {system.submit() for _ in range(jobs)}
    model.wait_for_held(jobs)
    held = memory_mb(system.pids())
    cpu, began = cpu_seconds(system.pids()), time.time()
    model.release()
    system.wait_for_all()
    cpu = cpu_seconds(system.pids()) - cpu
    most = memory_mb(system.pids())
    views = list_jobs(system.installation, None, ["succeeded"], jobs)
    assert {view.id for view in views} == ids, f"{len(views)} of {jobs} jobs succeeded"
    seconds = max(view.completed_at or 0.0 for view in views) - began
    lost = sum(
        run["outcome"] != "succeed" for job_id in ids for run in list_runs(system.installation.db, job_id)
    )
    share = ideal / seconds
    what = f"{jobs} jobs of {steps} steps, each streaming for {bench.sizes.stream_seconds:g} s"
    return Table(
        f"Waiting for models: {what}, SQLite, worker processes: {processes}",
        [
            Figure(
                "throughput", "of the ideal", [share], cpu_ms=cpu * 1000 / (jobs * steps),
                target=Target.at_least(share, LEAST_OF_IDEAL, f"≥ {LEAST_OF_IDEAL:g}"),
            ),
            Figure("leases lost", "leases", [lost], target=Target("none", lost == 0)),
            Figure("memory, workers and broker", "MB", [most], target=Target.at_most(most, MOST_MB, f"≤ {MOST_MB:g} MB")),
            Figure("the same, idle", "MB", [idle]),
            Figure("memory of a waiting agent", "MB", [max(held - idle, 0.0) / jobs]),
        ],
        ["CPU: of a step. Memory is what is resident, shared pages counted once; a waiting agent's is the growth from idle."],
    )  # fmt: skip
