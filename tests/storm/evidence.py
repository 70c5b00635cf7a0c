"""What a storm left behind: every row of every job, the ledger of effects, and what was told and witnessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from jobs.installation import Installation
from jobs.views import list_comments, list_events, list_messages, list_summaries
from jobs.workspace import workspace_path
from storage.models import jobs
from storage.records import Comment, HistoryEvent, Message, Summary
from storage.runs import list_runs
from tests.storm.mind import Mind
from tests.storm.recipes import Recipe
from tests.storm.traffic import Note


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of the ledger."""

    job_id: str
    call_id: str
    step: str
    pid: int
    at: float


@dataclass(slots=True)
class JobRecord:
    """All that is kept of one job."""

    row: Mapping[str, Any]
    messages: list[Message]
    events: list[HistoryEvent]
    comments: list[Comment]
    runs: list[dict[str, Any]]
    summaries: list[Summary]
    bash_lines: list[str]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def results(self) -> dict[str, Message]:
        """The result of each call; of one that was answered twice, the first."""
        found: dict[str, Message] = {}
        for message in self.messages:
            if message.tool_call_id is not None:
                found.setdefault(message.tool_call_id, message)
        return found


@dataclass(slots=True)
class Evidence:
    """Of a whole storm. `submitted`: by idempotency key; `unanswered`: keys whose submission was never answered."""

    records: dict[str, JobRecord]
    effects: list[Effect]
    notes: dict[str, Note]
    submitted: dict[str, Recipe]
    unanswered: set[str]
    mind: Mind
    told_ends: dict[str, set[str]]  # job → the ends that the hook was told of
    frozen: set[int] = field(default_factory=set)
    died: dict[int, float] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)  # a request's label, and its fault

    def effects_of(self, job_id: str) -> dict[str, list[Effect]]:
        """By call."""
        found: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            if effect.job_id == job_id:
                found[effect.call_id].append(effect)
        return found


def read_records(installation: Installation) -> dict[str, JobRecord]:
    """Every job that the database holds."""
    with installation.db.read() as conn:
        rows = [row._asdict() for row in conn.execute(sa.select(jobs).order_by(jobs.c.id))]
    return {row["id"]: _record(installation, row) for row in rows}


def _record(installation: Installation, row: dict[str, Any]) -> JobRecord:
    job_id = row["id"]
    bash = workspace_path(installation.settings.data_dir, job_id) / "output" / "effects.txt"
    return JobRecord(
        row=row,
        messages=list_messages(installation, job_id),
        events=list_events(installation, job_id),
        comments=list_comments(installation, job_id),
        runs=list_runs(installation.db, job_id),
        summaries=list_summaries(installation, job_id),
        bash_lines=bash.read_text().split() if bash.exists() else [],
    )


def read_ledger(ledger: Path) -> list[Effect]:
    return list(_effects(ledger.read_text().splitlines()))


def read_hook_ledger(ledger: Path) -> dict[str, set[str]]:
    told: dict[str, set[str]] = defaultdict(set)
    for line in ledger.read_text().splitlines():
        job_id, event_id = line.split()
        told[job_id].add(event_id)
    return told


def _effects(lines: Iterable[str]) -> Iterable[Effect]:
    for line in lines:
        job_id, call_id, step, pid, at = line.split()
        yield Effect(job_id, call_id, step, int(pid), float(at))
