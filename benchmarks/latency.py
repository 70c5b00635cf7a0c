"""From a submit to the job's first model call, beside a bare Celery task that calls the same model, on the same broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from benchmarks.bench import BACKENDS, NAMES, ROOT, Bench
from benchmarks.contestants import absent, started
from benchmarks.figures import Figure, Table, Target, compared
from benchmarks.model_server import ModelServer
from benchmarks.ours import LIKE_PEERS, Ours, ours
from benchmarks.peers import celery_jobs
from benchmarks.processes import environment
from jobs.installation import broker_url
from tests.servers.processes import kill_tree
from tests.waiting import wait_until

MOST = 1.5
MODEL = "1-0-1"
POLLED = 1.0  # seconds between two looks of DBOS at its queue, by default
POLLED_SUBMITS = 20  # at most: each takes about that long
BETWEEN = (
    "The job is committed, its wake-up sent, claimed and its first request built and committed in between."
)
QUEUES = (
    f"DBOS has a queue in its database at which its worker looks every {POLLED:g} s by default; the submits are spread evenly "
    "over that time. LangGraph, the library, has no queue and no workers: who wants a job done runs it."
)


def latency(bench: Bench) -> Table:
    """Ours and bare Celery take turns, one job at a time; both workers are idle otherwise. DBOS comes after them."""
    figures: list[Figure] = []
    with closing(ModelServer(bench)) as model:
        env = {"SOSTENUTO_MODEL": MODEL, **model.env, **LIKE_PEERS}
        for backend in BACKENDS[: 1 if bench.sizes.few else None]:
            with ours(bench, backend, env) as system:
                system.start_workers(1, 8)
                broker = broker_url(system.installation.settings)
                with _celery(bench, broker, model):
                    bare, job = _taking_turns(system, model, broker, bench.sizes.submits)
            name = f"bare Celery, same broker ({NAMES[backend]})"
            floor = Figure(
                name,
                "ms",
                bare,
                settings="send_task to the arrival of the task's own model call; prefork, its defaults",
            )
            figure = Figure(f"Sostenuto, {NAMES[backend]}", "ms", job)
            ratio = figure.median / floor.median
            figures += [floor, compared(figure, floor, Target.at_most(ratio, MOST, f"≤ {MOST:g} ×"))]
            if bench.peers_python:
                figures.append(compared(_dbos(bench, backend, model), floor))
    notes = [BETWEEN, QUEUES, *absent(bench, "DBOS")]
    return Table("From submit to the first model call, an idle system", figures, notes)


def _taking_turns(
    system: Ours, model: ModelServer, broker: str, count: int
) -> tuple[list[float], list[float]]:
    acts: tuple[Callable[[], object], ...] = (lambda: celery_jobs.ask(broker, MODEL), system.submit)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(count + 2):  # what is loaded once is not measured
        for act, taken in zip(acts, times, strict=True):
            milliseconds = _until_called(model, act)
            if number >= 2:
                taken.append(milliseconds)
            system.wait_for_all()
    return times


def _dbos(bench: Bench, backend: str, model: ModelServer) -> Figure:
    """One process submits, another one works."""
    url, count, times = bench.new_database(backend), min(bench.sizes.submits, POLLED_SUBMITS), []
    mode, more = (" in WAL mode", ("--wal",)) if backend == "sqlite" else ("", ())
    with (
        started(bench, "dbos_agents", (url, *more), 1, model.env) as worker,
        started(bench, "dbos_client", (url,), 1) as client,
    ):
        for number in range(count):
            time.sleep(number / count * POLLED)  # the last job has ended just after a look
            times.append(_until_called(model, lambda: client.begin(1, MODEL)))
            client.finish()
    return Figure(
        f"DBOS, {NAMES[backend]}{mode}", "ms", times, settings=f"{client.settings}; {worker.settings}"
    )


def _until_called(model: ModelServer, act: Callable[[], object]) -> float:
    """Milliseconds from before `act` to the arrival of the model call that it leads to."""
    before, began = len(model.calls()), time.monotonic()
    act()
    wait_until(lambda: len(model.calls()) > before, 60, "the model is called")
    return (model.calls()[before] - began) * 1000


@contextmanager
def _celery(bench: Bench, broker: str, model: ModelServer) -> Iterator[None]:
    log = bench.new_folder("celery") / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery_jobs", "worker", "-c", "1", "-l", "info",
               "--without-gossip", "--without-mingle"]  # fmt: skip
    env = environment(BENCH_BROKER=broker, **model.env)
    worker = bench.session.spawn(command, log, env=env, submark=bench.folder.name, cwd=ROOT)
    try:
        wait_until(lambda: " ready." in log.read_text(), 60, "the Celery worker is ready")
        yield
    finally:
        kill_tree(worker)
