"""The `spawn_subtask` tool: an agent begins a job of its own for a part of its work."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from jobs.errors import RequestPending
from jobs.installation import Installation
from jobs.pieces import WAIT_SUBTASKS, Movement, Piece
from jobs.subtasks import SubtaskRequest, begin_subtask
from jobs.views import JobView
from storage.records import RunRef
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.paths import relative_path

NAME = "spawn_subtask"
MOST_FILES = 200


def spawn_may_be_used(piece: Piece, movement: Movement) -> bool:
    """Where the movement's tools include it and the piece waits somewhere: else nobody would see the results."""
    waits = any(WAIT_SUBTASKS in stage.next_steps for stage in piece.movements)
    return waits and any(fnmatchcase(NAME, glob) for glob in movement.allowed_tools)


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "instruction": {
            "type": "string",
            "minLength": 1,
            "description": "the whole task, for someone who knows nothing of yours: what to do, with which "
            "files of its input/, and what to leave in its output/",
        },
        "piece": {
            "type": "string",
            "minLength": 1,
            "description": "the workflow to use; default: chosen by the instruction",
        },
        "files": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "maxItems": MOST_FILES,
            "description": "files of your workspace to copy into its input/; output/a/b.csv becomes "
            "input/a/b.csv there",
        },
    },
    "required": ["instruction"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class SpawnSubtask:
    """Made for one run: it begins children of that run's job only, and only while the run owns it.

    The child is known by the call's id, so that a call whose worker died may simply be run again.
    """

    installation: Installation
    ref: RunRef
    name: str = NAME
    description: str = (
        "Begin a subtask: another agent does a part of your work, at the same time, in a workspace of its own. It sees "
        "only the instruction and the files you give it. After beginning all of them, wait for their results with "
        "transition WAIT_SUBTASKS."
    )
    crash: CrashPolicy = CrashPolicy.REPEATABLE
    edits: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return _PARAMETERS

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        request = SubtaskRequest(
            call_id=context.call_id,
            instruction=arguments["instruction"],
            piece=arguments.get("piece"),
            files=[relative_path(context, path) for path in arguments.get("files", ())],
        )
        try:
            child, _ = begin_subtask(self.installation, self.ref, request)
        except RequestPending:
            return ToolResult("Error: not begun: this job is being cancelled.", is_error=True)
        return ToolResult(_told(child))


def _told(child: JobView) -> str:
    limits = [
        f"{value:,g} {name.removeprefix('max_')}" for name, value in child.budget.items() if value is not None
    ]
    budget = f" Its share of your budget: {', '.join(limits)}." if limits else ""
    return f"Subtask {child.id} has begun, with the piece {child.piece}: {child.title}.{budget}"
