"""Many agents that wait for their models: how near the ideal they stay, what each takes in memory, whether leases hold."""

from __future__ import annotations

import sys
import time
from contextlib import closing

from benchmarks.bench import Bench
from benchmarks.contestants import absent, started
from benchmarks.contests import KEEP_AS_MUCH, Peer
from benchmarks.figures import Figure, Table, Target, compared
from benchmarks.model_server import ModelServer
from benchmarks.ours import LIKE_PEERS, ours
from benchmarks.processes import cpu_seconds, memory_mb
from jobs.views import list_jobs
from storage.runs import list_runs

CHUNKS_A_SECOND = 20
LEAST_OF_IDEAL, MOST_MB = 0.85, 400.0
BARE = Peer("agents that keep nothing", "bare_agents", "sqlite", 2)
PEERS = (
    Peer("DBOS, SQLite in WAL mode", "dbos_agents", "sqlite", 1, ("--wal",)),
    Peer("LangGraph, AsyncSqliteSaver", "langgraph_agents", "sqlite", 2),
)
MEASURED = (
    "The ideal: a job takes as long as its model streams. CPU: of a step, in all processes of the system. Memory is what is "
    "resident, shared pages counted once; a waiting agent's is the growth from idle."
)
KEPT = (
    f"Each step's reply and its tool's result are kept, {KEEP_AS_MUCH} durable steps on DBOS and LangGraph, too. These run their "
    "jobs as coroutines of the processes that begin them: no submitter, no queue, no leases, and nobody who goes on when a "
    "process dies (DBOS does when it starts anew or by its recovery service, LangGraph when it is told to)."
)
CLIENT = (
    "All but Sostenuto, which reads the stream's bytes itself, have openai's async client, in as many pools of connections as "
    "Sostenuto's. The ones that keep nothing show what client and model server admit on these cores."
)


def waiting(bench: Bench) -> Table:
    """All jobs begin to stream at once, step by step, so that each step's commits come together: the worst case."""
    sizes = bench.sizes
    with closing(ModelServer(bench)) as model:
        figures = _ours(bench, model)
        for peer in (BARE, *(PEERS if bench.peers_python else ())):
            throughput, memory = _peer(bench, peer, model)
            figures += [compared(throughput, figures[0]), compared(memory, figures[1])]
    what = f"{sizes.waiting_jobs} jobs of {sizes.waiting_steps} steps, each streaming for {sizes.stream_seconds:g} s"
    return Table(
        f"Waiting for models: {what}, SQLite",
        figures,
        [MEASURED, KEPT, CLIENT, *absent(bench, "DBOS, LangGraph")],
    )


def _model(bench: Bench) -> str:
    seconds = bench.sizes.stream_seconds
    return f"{bench.sizes.waiting_steps}-{seconds}-{max(1, round(CHUNKS_A_SECOND * seconds))}-held"


def _ours(bench: Bench, model: ModelServer) -> list[Figure]:
    jobs, processes, name = bench.sizes.waiting_jobs, bench.sizes.processes, "Sostenuto"
    settings = f"worker processes: {processes}, with their broker; synchronous=FULL, WAL; no final summaries, no exchanges kept"
    with ours(bench, "sqlite", {"SOSTENUTO_MODEL": _model(bench), **model.env, **LIKE_PEERS}) as system:
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
        db = system.installation.db
        lost = sum(run["outcome"] != "succeed" for job_id in ids for run in list_runs(db, job_id))
    share = _share(bench, seconds)
    return [
        Figure(
            f"{name}: throughput", "of the ideal", [share], cpu_ms=_of_a_step(bench, cpu), settings=settings,
            target=Target.at_least(share, LEAST_OF_IDEAL, f"≥ {LEAST_OF_IDEAL:g}"),
        ),
        Figure(f"{name}: memory when all wait", "MB", [held]),
        Figure(
            f"{name}: memory at the end", "MB", [most], target=Target.at_most(most, MOST_MB, f"≤ {MOST_MB:g} MB")
        ),
        Figure(f"{name}: memory, idle", "MB", [idle]),
        Figure(f"{name}: memory of a waiting agent", "MB", [max(held - idle, 0.0) / jobs]),
        Figure(f"{name}: leases lost", "leases", [lost], target=Target("none", lost == 0)),
    ]  # fmt: skip


def _peer(bench: Bench, peer: Peer, model: ModelServer) -> tuple[Figure, Figure]:
    jobs, url = bench.sizes.waiting_jobs, bench.new_database(peer.backend)
    python = sys.executable if peer is BARE else None
    with started(bench, peer.module, (url, *peer.more), peer.processes, model.env, python=python) as running:
        running.begin(jobs, _model(bench))
        model.wait_for_held(jobs)
        held = memory_mb(running.pids())
        cpu, began = cpu_seconds(running.pids()), time.monotonic()
        model.release()
        running.finish()
        seconds, cpu = time.monotonic() - began, cpu_seconds(running.pids()) - cpu
    return (
        Figure(
            f"{peer.name}: throughput", "of the ideal", [_share(bench, seconds)],
            cpu_ms=_of_a_step(bench, cpu), settings=running.settings,
        ),
        Figure(f"{peer.name}: memory when all wait", "MB", [held]),
    )  # fmt: skip


def _share(bench: Bench, seconds: float) -> float:
    return bench.sizes.waiting_steps * bench.sizes.stream_seconds / seconds


def _of_a_step(bench: Bench, cpu: float) -> float:
    return cpu * 1000 / (bench.sizes.waiting_jobs * bench.sizes.waiting_steps)
