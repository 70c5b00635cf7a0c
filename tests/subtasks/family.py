"""A parent and its children on the agent's stage: one slice after the other, in the order of their wake-ups."""

from __future__ import annotations

from typing import Any

from storage.subtasks import list_children
from tests.agent.stage import Line, Stage, call, calls, go
from tests.strict_endpoint import Call, HttpFailure, Reply

WAIT = go("WAIT_SUBTASKS", "waiting for the parts")
NO_KEY = HttpFailure(401, {"error": {"code": "invalid_api_key", "message": "no", "type": "invalid_api_key"}})
ENDINGS = ("COMPLETE", "ASK", "ABORT", "WAIT_SUBTASKS")
PARENT, CHILD = "family", "part"


def spawn(instruction: str = "A part.", **more: Any) -> Call:
    return call("spawn_subtask", instruction=instruction, **({"piece": CHILD} | more))


def done(summary: str) -> Reply:
    return go("COMPLETE", summary)


class Family:
    """Children named by their number, from 0."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        rules = [{"condition": "if so", "next": name} for name in ENDINGS]
        stage.piece(PARENT, {"name": "work", "edit": True, "rules": rules})
        stage.piece(CHILD, {"name": "work", "edit": True, "rules": rules[:3]})

    def begin(self, *spawned: Call, then: Line = WAIT, **submitted: Any) -> str:
        """A parent that begins children in one reply, then waits."""
        return self.stage.play(calls(*spawned), then, piece=PARENT, **submitted)

    def children(self, parent: str) -> list[dict[str, Any]]:
        return list_children(self.stage.doors.db, parent)

    def child(self, parent: str, number: int) -> str:
        return str(self.children(parent)[number]["id"])

    def states(self, parent: str) -> list[str]:
        return [child["state"] for child in self.children(parent)]

    def run(self, job_id: str, *lines: Line) -> None:
        """One slice, which must be this job's."""
        self.stage.tell(*lines)
        ran = self.stage.run()
        assert ran == job_id, f"{ran} ran instead of {job_id}"

    def told(self, parent: str) -> str:
        """The result of the parent's last WAIT_SUBTASKS that has one."""
        results = [text for text in self.stage.results(parent) if text.startswith("All subtasks have ended")]
        return results[-1]
