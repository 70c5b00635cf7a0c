"""One storm from its beginning to the recount."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa

from jobs.states import TERMINAL
from storage.errors import StorageError
from storage.final_summaries import PENDING
from storage.models import hook_calls, jobs
from tests.servers.session import ServerSession
from tests.storm.audit import LOST, REPEATED, STUCK, Fault, audit, recoveries, unknown_outcomes
from tests.storm.blows import MEAN_GAP, Blow, plan
from tests.storm.evidence import Evidence, read_hook_ledger, read_ledger, read_records
from tests.storm.mind import Mind
from tests.storm.site import LEASE, Site
from tests.storm.traffic import Mix, Traffic
from tests.storm.weather import Sky, Weather

LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Storm:
    """What is to be done. `patience`: seconds after the last blow in which everything must come to its end."""

    seed: int
    duration: float
    database: str = "sqlite"
    broker: str = "valkey"
    workers: int = 4
    concurrency: int = 6
    patience: float = 300.0
    gap: float = MEAN_GAP
    mix: Mix = field(default_factory=Mix)

    def blows(self) -> list[Blow]:
        return plan(
            self.seed,
            self.duration,
            database=self.database,
            broker=self.broker,
            workers=self.workers,
            lease=LEASE,
            gap=self.gap,
        )


@dataclass(slots=True)
class Outcome:
    """What came of it: figures to be shown, in order, and the faults."""

    figures: dict[str, str]
    faults: list[Fault]
    remarks: list[str]

    def count(self, kind: str) -> int:
        """How many jobs have such a fault."""
        return len({fault.job_id for fault in self.faults if fault.kind == kind})

    @property
    def verdict(self) -> str:
        return ", ".join(f"{kind} {self.count(kind)}" for kind in (LOST, REPEATED, STUCK))


def weather_the_storm(
    session: ServerSession, storm: Storm, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Sends the storm, waits until calm has settled everything, and counts."""
    mind = Mind()
    sky = Sky(mind)
    site = Site(session, storm.database, storm.broker, sky, {})
    try:
        site.open_slots(storm.workers, storm.concurrency)
        traffic = Traffic(site, storm.seed, storm.mix)
        weather = Weather(site, sky)
        traffic.start()
        began = time.monotonic()
        blows = storm.blows()
        say(f"{len(blows)} blows in {storm.duration:g} s on {storm.database} and {storm.broker}")
        weather.blow(blows, began)
        weather.over.wait(max(began + storm.duration - time.monotonic(), 0.0))
        traffic.drain()
        weather.calm()
        say("calm: what is open comes to its end")
        settled = settle(site, traffic, storm.patience)
        traffic.stop()
        evidence = gather(site, traffic, mind)
        return judge(evidence, site, traffic, weather, settled)
    finally:
        site.close()


def settle(site: Site, traffic: Traffic, patience: float) -> float | None:
    """Seconds until all had ended: jobs, summaries, calls of hooks. None where that took longer than `patience`."""
    began = time.monotonic()
    while time.monotonic() < began + patience:
        if traffic.is_done and not _left(site):
            return time.monotonic() - began
        time.sleep(LOOK_SECONDS)
    return None


def _left(site: Site) -> int:
    open_jobs = sa.or_(jobs.c.state.not_in(TERMINAL), jobs.c.summary_state == PENDING)
    try:
        with site.installation.db.read() as conn:
            left: int = conn.execute(sa.select(sa.func.count()).where(open_jobs)).scalar_one()
            return left + conn.execute(sa.select(sa.func.count(hook_calls.c.id))).scalar_one()
    except StorageError:  # it is still being restarted
        return 1


def gather(site: Site, traffic: Traffic, mind: Mind) -> Evidence:
    """All that there is to judge by. Call it while nothing is at work any more."""
    died: dict[int, float] = {}
    for slot in site.slots:
        died |= slot.died
    return Evidence(
        records=read_records(site.installation),
        effects=read_ledger(site.ledger),
        notes=traffic.notes,
        submitted=traffic.recipes,
        unanswered=set(traffic.unanswered),
        mind=mind,
        told_ends=read_hook_ledger(site.hook_ledger),
        frozen={pid for slot in site.slots for pid in slot.frozen},
        died=died,
        violations=[
            (found.label, f"the endpoint refused a request: {found.rule}: {found.message}")
            for found in site.endpoint.violations
        ],
    )


def judge(
    evidence: Evidence, site: Site, traffic: Traffic, weather: Weather, settled: float | None
) -> Outcome:
    faults = audit(evidence)
    records = evidence.records.values()
    counts: Counter[str] = Counter()
    for slot in site.slots:
        counts += slot.counts
    blows = weather.counts
    outcome = Outcome({}, faults, list(weather.failed))
    kinds = Counter(summary.kind for record in records for summary in record.summaries)
    states = Counter(record.row["state"] for record in records)
    outcome.figures = {
        "jobs": f"{len(records)} ({', '.join(f'{count} {state}' for state, count in states.items())})",
        "steps": str(sum(record.row["steps"] for record in records)),
        "runs": str(sum(len(record.runs) for record in records)),
        "comments and answers": str(sum(len(note.told) for note in traffic.notes.values())),
        "subtasks": str(sum(record.row["parent_id"] is not None for record in records)),
        "compactions": str(kinds["compaction"]),
        "final summaries": str(kinds["final"]),
        "workers killed": f"{counts['kill']} by SIGKILL, {counts['crash']} at a crash point",
        "workers frozen": str(counts["freeze"]),
        "workers stopped in order": str(counts["term"]),
        "workers started again": str(counts["restart"]),
        "workers ended by themselves": str(counts["exit"]),
        "broker": _told(blows, "broker."),
        "database": _told(blows, "database."),
        "model": _told(blows, "model."),
        "unknown-outcome tools": str(sum(unknown_outcomes(record) for record in records)),
        "failed summaries": str(sum(record.row["summary_state"] == "failed" for record in records)),
        "calls of people that failed": str(traffic.errors),
        "slowest recovery": _slowest(recoveries(evidence)),
        "calm after": f"{settled:.1f} s" if settled is not None else "never",
    }
    outcome.figures |= {kind: str(outcome.count(kind)) for kind in (LOST, REPEATED, STUCK)}
    return outcome


def _slowest(took: list[tuple[float, str]]) -> str:
    if not took:
        return "none was needed"
    seconds, job_id = max(took)
    middle = statistics.median(seconds for seconds, _ in took)
    return f"{seconds:.1f} s (job {job_id}); {middle:.1f} s in the middle of {len(took)}"


def _told(counts: Counter[str], prefix: str) -> str:
    told = [
        f"{count} {kind.removeprefix(prefix)}"
        for kind, count in sorted(counts.items())
        if kind.startswith(prefix)
    ]
    return ", ".join(told) or "0"
