"""The same jobs on other systems, taking turns: ten no-op steps through a queue, and one long job."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.bench import BACKENDS, NAMES, Bench
from benchmarks.contestants import Contestant, Round, absent, bare_celery, our_jobs, peers
from benchmarks.figures import Figure, Table, Target, compared

LEAST_A_SECOND = 50.0
STEPS = 10
KEEP_AS_MUCH, KEEP_HALF = 2, 1  # durable steps for each of ours, which keeps the reply and the tool's result
KEPT = (
    f"Sostenuto keeps the reply and the tool's result of each step, {2 * STEPS} a job. DBOS and LangGraph are shown keeping as "
    f"much, as an agent's model and tools on them do, and keeping each step once, {STEPS} a job. They run their jobs in the "
    "process that begins them: no submitter, no queue, no other worker that would go on."
)
CPU = "CPU: of a job or a step, in all processes of the system, without the submitter's and the database server's."
Taken = Sequence[tuple[Contestant, list[Round]]]  # by all of a contest, in their order


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the other systems on one database."""

    name: str
    module: str
    backend: str
    processes: int  # with which it was fastest on two cores
    more: tuple[str, ...] = ()


PEERS = (
    Peer("DBOS, SQLite", "dbos_jobs", "sqlite", 1),
    Peer("DBOS, SQLite in WAL mode", "dbos_jobs", "sqlite", 1, ("--wal",)),
    Peer("DBOS, Postgres", "dbos_jobs", "postgres", 2),
    Peer("LangGraph, SqliteSaver", "langgraph_jobs", "sqlite", 1),
    Peer("LangGraph, PostgresSaver", "langgraph_jobs", "postgres", 2),
)
CELERY = {
    "Celery, a task a job": "whole",
    "Celery, a task a step": "steps",
    "Celery, a task and a row a step": "rows",
}


def contest(bench: Bench) -> list[Table]:
    """Short jobs, then one long one, by the same running systems."""
    with running(bench) as systems:
        short = rounds(bench, systems, bench.sizes.jobs, STEPS)
        alone = [it for it in systems if it.name != "Celery, a task a job" and "once" not in it.name]
        long = rounds(bench, alone, 1, bench.sizes.long_steps)
    notes = [CPU, KEPT, *absent(bench, "DBOS, LangGraph")]
    return tables(bench, short, long, notes)


def tables(bench: Bench, short: Taken, long: Taken, notes: list[str]) -> list[Table]:
    """Of the short jobs, jobs a second; of the long one, a step's share of the whole job, its submit and start included."""
    jobs, steps = bench.sizes.jobs, bench.sizes.long_steps
    many = [
        Figure(each.name, "jobs/s", [jobs / it.seconds for it in its], cpu_ms=_cpu(its, jobs), settings=each.settings)
        for each, its in short
    ]  # fmt: skip
    one = [
        Figure(each.name, "ms", [it.seconds * 1000 / steps for it in its], cpu_ms=_cpu(its, steps)) for each, its in long
    ]  # fmt: skip
    return [
        Table(
            f"Jobs of {STEPS} steps that do nothing, {jobs} at once",
            [_with_target(it, many) for it in _beside_ours(many)],
            notes,
        ),
        Table(f"One job of {steps} steps that do nothing, alone: a step", _beside_ours(one), notes),
    ]


@contextmanager
def running(bench: Bench) -> Iterator[list[Contestant]]:
    """All systems of this run, started and warm."""
    found: list[Contestant] = []
    with ExitStack() as stack:
        found.append(stack.enter_context(our_jobs(bench, "sqlite")))
        if not bench.sizes.few:
            found.append(stack.enter_context(our_jobs(bench, "postgres")))
            found.append(stack.enter_context(our_jobs(bench, "sqlite", defaults=True)))
        for peer in PEERS if bench.peers_python else ():
            if bench.sizes.few and peer.backend != "sqlite":
                continue  # ours is not on it, either
            names = {KEEP_AS_MUCH: peer.name, KEEP_HALF: f"{peer.name}, each step once"}
            arguments = (bench.new_database(peer.backend), *peer.more)
            found += stack.enter_context(peers(bench, names, peer.module, arguments, peer.processes))
        for name, kind in list(CELERY.items())[-1 if bench.sizes.few else 0 :]:
            found.append(stack.enter_context(bare_celery(bench, name, kind)))
        yield found


def rounds(bench: Bench, contestants: Sequence[Contestant], jobs: int, steps: int) -> Taken:
    """In each round each takes its turn, so that other load on the machine hits all alike."""
    taken = [[contestant.run(jobs, steps) for contestant in contestants] for _ in range(bench.sizes.rounds)]
    return [(contestant, [row[at] for row in taken]) for at, contestant in enumerate(contestants)]


def _beside_ours(figures: Sequence[Figure]) -> list[Figure]:
    """Each with its ratio to ours on the same kind of database."""
    ours = {name: it for it in figures for name in BACKENDS if it.name == f"Sostenuto, {NAMES[name]}"}
    return [
        it if it in ours.values() else compared(it, ours["postgres" if "Postgres" in it.name else "sqlite"])
        for it in figures
    ]  # fmt: skip


def _with_target(figure: Figure, figures: Sequence[Figure]) -> Figure:
    """Ours is to be ahead of all that keep as much, and of a Celery task a step, which keeps nothing."""
    if figure.name != "Sostenuto, SQLite":
        return figure
    rivals = {peer.name for peer in PEERS if peer.backend == "sqlite"} | {"Celery, a task a step"}
    behind = [other.name for other in figures if other.name in rivals and other.median >= figure.median]
    text = f"≥ {LEAST_A_SECOND:g}/s, ahead of all that keep as much"
    if behind:
        text += f" (behind {'; '.join(behind)})"
    return replace(figure, target=Target(text, figure.median >= LEAST_A_SECOND and not behind))


def _cpu(its: Sequence[Round], things: int) -> float:
    return statistics.median(it.cpu for it in its) * 1000 / things
