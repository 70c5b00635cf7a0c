"""Systems that run the same jobs: each is started once, and they take turns, so that other load hits all alike."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.bench import NAMES, ROOT, Bench
from benchmarks.ours import LIKE_PEERS, Ours, ours
from benchmarks.peers import celery_jobs as tasks
from benchmarks.processes import cpu_seconds, environment
from jobs.views import list_jobs
from tests.servers.processes import kill_tree

SLOTS = 8  # agents at once in a process


@dataclass(frozen=True, slots=True)
class Round:
    """`seconds` from the first submit to the last end; `cpu` without the submitter's and the database server's."""

    seconds: float
    cpu: float


class Contestant(Protocol):
    """A running system."""

    name: str
    settings: str

    def run(self, jobs: int, steps: int) -> Round: ...


@dataclass
class OurJobs:
    """Two worker processes over an embedded broker."""

    name: str
    settings: str
    system: Ours
    scripts: Path

    def run(self, jobs: int, steps: int) -> Round:
        model = f"scripted:{scripted_steps(self.scripts, steps)}"
        cpu, began = cpu_seconds(self.system.pids()), time.time()
        ids = {self.system.submit(model=model) for _ in range(jobs)}
        self.system.wait_for_all()
        cpu = cpu_seconds(self.system.pids()) - cpu
        done = [
            view for view in list_jobs(self.system.installation, None, ["succeeded"], jobs) if view.id in ids
        ]
        assert len(done) == jobs, f"{len(done)} of {jobs} jobs succeeded"
        assert {view.steps for view in done} == {steps}
        return Round(max(view.completed_at or 0.0 for view in done) - began, cpu)


@dataclass
class RunningPeer:
    """Another system, in interpreters of its own environment that share the jobs: see `benchmarks.peers.serving`."""

    settings: str
    processes: Sequence[subprocess.Popen[str]]

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def begin(self, jobs: int, work: int | str) -> None:
        """`work`: the steps of each job, or the name of its model."""
        for at, process in enumerate(self.processes):
            share = jobs // len(self.processes) + (at < jobs % len(self.processes))
            _tell(process, {"jobs": share, "work": work})

    def finish(self) -> None:
        """Returns when all jobs have ended."""
        for process in self.processes:
            _hear(process)


@dataclass
class PeerJobs:
    """Another system that keeps so much."""

    name: str
    settings: str
    peer: RunningPeer
    kept: int  # durable steps for each of ours
    servers: Sequence[int] = ()  # further processes of the system, whose CPU counts

    def run(self, jobs: int, steps: int) -> Round:
        pids = [*self.servers, *self.peer.pids()]
        cpu, began = cpu_seconds(pids), time.monotonic()
        self.peer.begin(jobs, steps * self.kept)
        self.peer.finish()
        return Round(time.monotonic() - began, cpu_seconds(pids) - cpu)


@dataclass
class CeleryJobs:
    """Bare Celery: its client is this process."""

    name: str
    settings: str
    kind: str
    worker: subprocess.Popen[bytes]
    broker: str

    def run(self, jobs: int, steps: int) -> Round:
        client = tasks.counter(self.broker)
        client.delete(tasks.DONE)
        cpu, began = cpu_seconds([self.worker.pid]), time.monotonic()
        for number in range(jobs):
            tasks.begin(self.broker, self.kind, f"{time.time_ns()}-{number}", steps)
        while tasks.done(client) < jobs:
            assert self.worker.poll() is None, "the Celery worker ended"
            time.sleep(0.002)
        return Round(time.monotonic() - began, cpu_seconds([self.worker.pid]) - cpu)


def _tell(process: subprocess.Popen[str], order: dict[str, int | str]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended without an answer"
    answer: dict[str, str] = json.loads(line)
    return answer


# --- their starts ---


@contextmanager
def our_jobs(bench: Bench, backend: str, *, defaults: bool = False) -> Iterator[Contestant]:
    """`defaults`: with what no other system does: a final summary of each job, the exchanges with models kept."""
    env = {"SOSTENUTO_CONTEXT_WINDOW": "1000000"}
    with ours(bench, backend, env if defaults else env | LIKE_PEERS) as system:
        system.start_workers(bench.sizes.processes, SLOTS)
        kept = "synchronous=FULL, WAL" if backend == "sqlite" else "synchronous_commit=on"
        rest = "all defaults" if defaults else "no final summaries, no exchanges kept, as with the others"
        name = f"Sostenuto, {NAMES[backend]}" + (", all defaults" if defaults else "")
        settings = (
            f"worker processes: {bench.sizes.processes} of {SLOTS} agents, {kept}; two commits a step; {rest}"
        )
        contestant = OurJobs(name, settings, system, bench.new_folder("scripts"))
        contestant.run(bench.sizes.processes, 2)  # what is loaded once is not measured
        yield contestant


def scripted_steps(folder: Path, steps: int) -> Path:
    """A model's script: a tool call that looks nothing up in each step, the end in the last."""
    file = folder / f"{steps}.yaml"
    if not file.exists():
        replies = [f"calls: [{{recall: {{before: {step}}}}}]" for step in range(1, steps)]
        replies.append("transition: {next_step: COMPLETE, summary: done}")
        file.write_text("\n".join(["movements:", "  work:", *(f"    - {reply}" for reply in replies)]))
    return file


@contextmanager
def peers(
    bench: Bench,
    names: Mapping[int, str],
    module: str,
    arguments: Sequence[str],
    processes: int,
    *,
    servers: Sequence[int] = (),
) -> Iterator[list[Contestant]]:
    """The same running system once for each number of kept steps in `names`."""
    with started(bench, module, arguments, processes) as peer:
        yield [PeerJobs(name, peer.settings, peer, kept, servers) for kept, name in names.items()]


def absent(bench: Bench, names: str) -> list[str]:
    """A note where the other systems are not installed."""
    return [] if bench.peers_python else [f"Not installed, so not measured: {names} ({bench.peers.name})."]


@contextmanager
def started(
    bench: Bench,
    module: str,
    arguments: Sequence[str],
    processes: int,
    env: Mapping[str, str] | None = None,
    *,
    python: str | None = None,
) -> Iterator[RunningPeer]:
    """`module` of `benchmarks.peers`, once it is warm; without `python` in the other systems' environment."""
    python = python or str(bench.peers_python)
    command = [python, "-m", f"benchmarks.peers.{module}", *arguments]
    log = bench.new_folder("peer") / "errors.log"
    running: list[subprocess.Popen[str]] = []
    settings = ""
    with log.open("w") as errors, ExitStack() as stack:
        for _ in range(processes):  # one after another: the first makes the tables
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(**(env or {})), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            running.append(process)
            try:
                settings = _hear(process)["settings"]
            except AssertionError as error:
                raise AssertionError(f"{module} does not start:\n{log.read_text()[-2000:]}") from error
        yield RunningPeer(f"{settings}, processes: {processes}", running)


@contextmanager
def bare_celery(bench: Bench, name: str, kind: str) -> Iterator[Contestant]:
    """A worker of bare Celery as it comes, on a broker such as ours."""
    broker = bench.new_broker()
    env = {"BENCH_BROKER": broker}
    if kind == "rows":
        env["BENCH_FILE"] = str(bench.new_folder("rows") / "steps.db")
    log = bench.new_folder("celery") / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery_jobs", "worker",
               "-c", str(bench.sizes.processes), "-l", "warning", "--without-gossip", "--without-mingle"]  # fmt: skip
    worker = bench.session.spawn(command, log, env=environment(**env), submark=bench.folder.name, cwd=ROOT)
    durable = (
        "each step's row in SQLite at FULL, acks_late, prefetch 1"
        if kind == "rows"
        else "nothing kept, its defaults"
    )
    contestant = CeleryJobs(
        name, f"prefork, processes: {bench.sizes.processes}, Valkey; {durable}", kind, worker, broker
    )
    try:
        contestant.run(bench.sizes.processes, 2)  # returns when it takes tasks
        yield contestant
    finally:
        kill_tree(worker)
