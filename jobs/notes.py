"""What an agent noted of its own work: todos, checklists, plans, and the lessons that its movements handed on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from jobs.checklists import Checklist, current_checklists
from jobs.installation import Installation
from jobs.pieces.model import ENDINGS
from jobs.todos import Todo, current_todos
from jobs.views import iso
from storage import jobs as store
from storage import plans
from storage.records import Plan


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one movement handed to the next. Times are epoch seconds."""

    at: float
    movement: str
    next: str
    lessons: str


@dataclass(frozen=True, slots=True)
class Notes:
    """All of it, each list in the order of its making."""

    todos: tuple[Todo, ...]
    checklists: tuple[Checklist, ...]
    plans: tuple[Plan, ...]
    lessons: tuple[Lesson, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with times as ISO 8601 in UTC."""
        return {
            "todos": [asdict(todo) for todo in self.todos],
            "checklists": [checklist.as_dict() for checklist in self.checklists],
            "plans": [
                {
                    "seq": plan.seq,
                    "at": iso(plan.created_at),
                    "plan_type": plan.plan_type,
                    "plan_content": plan.plan_content,
                }
                for plan in self.plans
            ],
            "lessons": [asdict(lesson) | {"at": iso(lesson.at)} for lesson in self.lessons],
        }


def get_notes(installation: Installation, job_id: str) -> Notes:
    """The job's notes. The caller has checked the owner."""
    db = installation.db
    return Notes(
        current_todos(db, job_id).items,
        tuple(current_checklists(db, job_id).values()),
        tuple(plans.list_plans(db, job_id)),
        tuple(_lessons(installation, job_id)),
    )


def _lessons(installation: Installation, job_id: str) -> list[Lesson]:
    events = store.list_events_of_kind(installation.db, job_id, "transition")
    found = [(event.at, event.data or {}) for event in events]
    return [
        Lesson(at, data["from"], data["to"], data["lessons"])
        for at, data in found
        if data["to"] not in ENDINGS
    ]
