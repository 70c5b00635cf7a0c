"""`sostenuto notes`: what the agent noted of its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.text import to_json

if TYPE_CHECKING:
    from jobs.notes import Notes


def notes(job: options.JobId, json: options.Json = False) -> None:
    """Print what a job's agent noted. Its todos, checklists and plans, and the lessons of its movements."""
    from jobs.notes import get_notes

    with opened_job(job) as (installation, job_id):
        found = get_notes(installation, job_id)
    if json:
        print(to_json(found.as_dict()))
    else:
        _print(found)


def _print(found: Notes) -> None:
    from jobs.todos import todo_lines

    parts = [
        ("todos", todo_lines(found.todos)),
        *((f"checklist {checklist.name}", checklist.lines()) for checklist in found.checklists),
        *(
            (f"plan {plan.plan_type}, {render.moment(plan.created_at)}", plan.plan_content)
            for plan in found.plans
        ),
        *((f"lessons of {lesson.movement} for {lesson.next}", lesson.lessons) for lesson in found.lessons),
    ]
    written = [(heading, text) for heading, text in parts if text]
    for heading, text in written:
        render.line((heading, "bold"))
        render.line(text.rstrip())
        render.line()
    if not written:
        render.note("nothing noted")
