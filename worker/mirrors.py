"""Copies of a job's records in its `logs/`, for people and for the agent's own tools. The database is the truth.

They are written anew as a whole, atomically, whenever their subject changes and when a movement begins: whatever a crash
or the agent did to them is mended then. A mirror that cannot be written is a line in the worker's log, nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobs.checklists import Checklists, current_checklists
from jobs.pieces.model import ENDINGS
from jobs.views import iso
from storage import jobs as job_store
from storage.records import HistoryEvent
from worker.job_run import JobRun
from worker.keeping import keep_file


def mirror_instruction(job: JobRun, path: str) -> None:
    """The whole instruction, where it is too long for the context."""
    keep_file(job.workspace, job.job_id, path, job.instruction)  # written once, and pointed to


def mirror_checklists(job: JobRun, lists: Checklists | None = None) -> None:
    """`logs/checklists/NAME.json`, one for each list."""
    found = current_checklists(job.process.db, job.job_id) if lists is None else lists
    for checklist in found.values():
        text = json.dumps(checklist.as_dict(), ensure_ascii=False, indent=2)
        _write(job, f"logs/checklists/{checklist.name}.json", f"{text}\n")


def mirror_transitions(job: JobRun, events: Sequence[HistoryEvent] | None = None) -> None:
    """`logs/progress.jsonl`, a line for each transition, and `logs/lessons.jsonl`, one for each lesson handed on."""
    if events is None:
        events = job_store.list_events_of_kind(job.process.db, job.job_id, "transition")
    progress = [_line(event, "summary") for event in events]
    lessons = [_line(event, "lessons") for event in events if (event.data or {})["to"] not in ENDINGS]
    for name, lines in (("progress", progress), ("lessons", lessons)):
        if lines:
            text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            _write(job, f"logs/{name}.jsonl", text)


def _line(event: HistoryEvent, told: str) -> dict[str, Any]:
    data = event.data or {}
    return {"at": iso(event.at), "movement": data["from"], "next": data["to"], told: data[told]}


def _write(job: JobRun, path: str, text: str) -> None:
    keep_file(job.workspace, job.job_id, path, text, durable=False)  # what a power cut takes is written again
