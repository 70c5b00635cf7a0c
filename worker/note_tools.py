"""Tools with which an agent keeps track of its own work: `todo_write`, `plan` and the checklists.

None of them acts outside the transcript: their calls are the record, and whoever needs the state replays them. So a
call whose worker died may simply be run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jobs import checklists
from jobs.arguments import decode_arguments
from jobs.todos import PARAMETERS as TODO_PARAMETERS
from jobs.todos import TODO_WRITE, as_json, todos_of
from storage.engine import Database
from storage.records import NewPlan
from worker.tools.base import CrashPolicy, Tool, ToolContext, ToolResult

PLAN = "plan"
CHECKLIST_CHANGES = (checklists.CREATE, checklists.TICK)
NOTE_TOOLS = (TODO_WRITE, PLAN, *checklists.PARAMETERS)


class TodoWrite:
    """Takes the whole list and returns it as it now is."""

    name = TODO_WRITE
    description = (
        "Write your todo list: always the whole list, it replaces the one before. Use it for work of three or more "
        "steps: note every step before you begin, keep exactly one in_progress, and mark each completed as soon as it "
        "is done, not later. The list is kept over interruptions and handed to the next movement."
    )
    parameters: ClassVar[dict[str, Any]] = TODO_PARAMETERS
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 (the interface of tools)
        return ToolResult(as_json(todos_of(arguments)))


class Plan:
    """Its plan is stored with the commit of its result (see `plan_of`)."""

    name = PLAN
    description = (
        "Record a plan for the people who follow the job and for later jobs on the same thing: what you are going to do "
        "and why, or how the plan has changed. It is kept with its time; it does nothing else."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "plan_type": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100,
                "description": "what kind of plan, such as initial, revision, design, test",
            },
            "plan_content": {"type": "string", "minLength": 1, "maxLength": 20_000},
        },
        "required": ["plan_type", "plan_content"],
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 (the interface of tools)
        return ToolResult("Recorded.")


def plan_of(name: str, arguments: str, result: ToolResult) -> NewPlan | None:
    """The plan to store with this call's result, if it is one."""
    if name != PLAN or result.is_error:
        return None
    given = decode_arguments(arguments, Plan.parameters)
    return NewPlan(given["plan_type"], given["plan_content"])


_DESCRIPTIONS = {
    checklists.CREATE: "Make a checklist: named points that must each be checked, such as the demands of a task. It is "
    "kept, and handed to the next movement.",
    checklists.TICK: "Tick one point of a checklist off, with what you saw; only after you have really checked it.",
    checklists.LIST: "Show one checklist, or all of them.",
}


@dataclass(frozen=True, slots=True)
class ChecklistTool:
    """One of the three; made for one run, so that it can reach no other job's lists."""

    db: Database
    job_id: str
    name: str
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    @property
    def description(self) -> str:
        return _DESCRIPTIONS[self.name]

    @property
    def parameters(self) -> dict[str, Any]:
        return checklists.PARAMETERS[self.name]

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:  # noqa: ARG002 (the interface of tools)
        lists = checklists.current_checklists(self.db, self.job_id)
        try:
            if self.name == checklists.LIST:
                wanted = arguments.get("name")
                shown = [checklists.find(lists, wanted)] if wanted else list(lists.values())
            else:
                shown = [checklists.apply(lists, self.name, arguments)]
        except checklists.Refused as error:
            return ToolResult(f"Error: {error}.", is_error=True)
        return ToolResult("\n\n".join(found.lines() for found in shown) or "There are no checklists.")


def note_tools(db: Database, job_id: str) -> list[Tool]:
    """These tools for one job."""
    lists = [ChecklistTool(db, job_id, name) for name in checklists.PARAMETERS]
    return [TodoWrite(), Plan(), *lists]
