"""What passes from one movement to the next: lessons, findings of a verification, open todos, checklists, git.

All of it is read from committed rows when the next movement begins. Nothing else of the earlier conversation passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.checklists import Checklists, current_checklists
from jobs.pieces.model import ENDINGS
from storage import jobs as job_store
from storage.records import HistoryEvent
from worker import transition
from worker.git_excerpt import git_excerpt
from worker.job_run import JobRun
from worker.language import is_japanese
from worker.mirrors import mirror_checklists, mirror_transitions
from worker.prompts import Block, lessons_block
from worker.reminders import listed

FINDINGS_CHARS = transition.FINDINGS_CHARS
CHECKLISTS_CHARS = 6000
_CUT = " […cut]"


def blocks_of_earlier_movements(job: JobRun) -> list[Block]:
    """The blocks at the top of the head, in order; none in a job's first movement. Brings the mirrors up to date."""
    if not job.row["visit"]:
        return []
    events = job_store.list_events_of_kind(job.process.db, job.job_id, "transition")
    mirror_transitions(job, events)
    # A question asked on the way, or a wait for subtasks, ends no movement.
    passed = [event for event in events if _data(event)["to"] not in ENDINGS]
    lists = current_checklists(job.process.db, job.job_id)
    mirror_checklists(job, lists)
    findings = _findings(job, passed)
    told = {event.seq for event in findings}
    lessons = _lessons([event for event in passed if event.seq not in told])
    blocks = [
        lessons_block(lessons, japanese=is_japanese(job.instruction)),
        _findings_block(findings),
        _todos_block(job),
        _checklists_block(lists),
        _git_block(job, passed),
    ]
    return [block for block in blocks if block is not None]


def _data(event: HistoryEvent) -> dict[str, Any]:
    return event.data or {}


def _lessons(passed: Sequence[HistoryEvent]) -> str:
    """What earlier movements handed over: 2,000 characters in all, the oldest dropped, the newest cut to fit."""
    kept: list[str] = []
    room = transition.LESSONS_CHARS
    for event in reversed(passed):
        lesson = f"- {_data(event)['from']}: {_data(event)['lessons']}"
        if kept and len(lesson) > room:
            break
        kept.append(lesson[:room])
        room -= len(lesson) + 1
    return "\n".join(reversed(kept))


def _findings(job: JobRun, passed: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The ends of verifications of this movement since it was last visited, oldest first."""
    here = job.row["movement"]
    found: list[HistoryEvent] = []
    for event in reversed(passed):
        movement = _data(event)["from"]
        if movement == here:
            break
        if job.piece.movement(movement).verify == here:
            found.insert(0, event)
    return found


def _findings_block(findings: Sequence[HistoryEvent]) -> Block | None:
    """Whole as far as they fit; of several the newest have the first claim to the room."""
    parts: list[str] = []
    room = FINDINGS_CHARS
    for event in reversed(findings):
        data = _data(event)
        text = f"From {data['from']}:\n{data.get('findings') or data['summary']}"
        if data["lessons"] != data.get("findings", data["summary"])[: transition.LESSONS_CHARS]:
            text += f"\nLessons: {data['lessons']}"
        if len(text) > room:
            text = text[: max(room, 0)] + _CUT
        parts.insert(0, text)
        room -= len(text)
        if room <= 0:
            break
    return Block("verify", "## Findings of the verification\n" + "\n\n".join(parts)) if parts else None


def _todos_block(job: JobRun) -> Block | None:
    still_open = job.todos.open_items
    return Block("todos", f"## Open todos\n{listed(still_open)}") if still_open else None


def _checklists_block(lists: Checklists) -> Block | None:
    if not lists:
        return None
    text = "\n\n".join(found.lines() for found in lists.values())
    if len(text) > CHECKLISTS_CHARS:
        text = text[:CHECKLISTS_CHARS] + f"{_CUT}: read logs/checklists/"
    return Block("checklists", f"## Checklists\n{text}")


def _git_block(job: JobRun, passed: Sequence[HistoryEvent]) -> Block | None:
    """What the workspace's repositories have changed, after a movement that verified."""
    if not passed or not job.piece.movement(_data(passed[-1])["from"]).verify:
        return None
    text = git_excerpt(job.workspace, job.process.sandbox, job.live.cancel)
    return Block("git", f"## Changes in the workspace (git)\n{text}") if text else None
