"""Jobs with a past, written as a worker would have written it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobs.installation import Installation
from jobs.submit import SubmitRequest, submit
from storage.checkpoints import commit_if_run_owns
from storage.records import Checkpoint, Commit, NewEvent, NewMessage, RunRef
from tests import factories

OWNER = "local"


class Past:
    """A running job; each method is a commit of its run."""

    def __init__(self, where: Installation, instruction: str = "Do it.", **submitted: Any) -> None:
        self.where = where
        self.id = submit(where, SubmitRequest(instruction, **submitted), OWNER).job.id
        self.run: RunRef = factories.claim_job(where.db, self.id)
        self._calls = 0

    def write(self, *messages: NewMessage, **fields: Any) -> None:
        checkpoint = Checkpoint(fields.pop("what", Commit.REPLY), messages=list(messages), **fields)
        commit_if_run_owns(self.where.db, self.run, checkpoint)

    def next_seq(self) -> int:
        """The number of the message that comes next."""
        return int(factories.job_now(self.where.db, self.id)["total_messages"]) + 1

    def begin(self, movement: str = "work", prompt: str = "You are careful.") -> None:
        system = NewMessage("system", "system", prompt, extra={"movement": movement, "tools": []})
        begun = NewEvent("movement", "worker", data={"movement": movement, "visit": 1})
        self.write(system, what=Commit.VISIT, begins_visit=True, events=[begun])

    def say(self, text: str | None, *calls: tuple[str, Any], **extra: Any) -> list[str]:
        """A reply; gives the ids of its calls (name, arguments), whose arguments may be any text."""
        made = []
        for name, arguments in calls:
            self._calls += 1
            sent = arguments if isinstance(arguments, str) else json.dumps(arguments)
            made.append({"id": f"call{self._calls}", "name": name, "arguments": sent})
        message = NewMessage("assistant", "assistant", text, tool_calls=made or None, extra=extra or None)
        self.write(message, steps=1, prompt_tokens=100, completion_tokens=10, cost=0.001)
        return [call["id"] for call in made]

    def answer(self, call_id: str, text: str, name: str = "Bash", *, is_error: bool = False) -> None:
        message = NewMessage("tool", "tool", text, tool_call_id=call_id, tool_name=name, is_error=is_error)
        self.write(message, what=Commit.RESULT)

    def ask(self, question: str, choices: Sequence[str] = (), **more: Any) -> None:
        asked = {"question": question, "choices": list(choices), **more}
        arguments = {"next_step": "ASK", "summary": question, "choices": list(choices)}
        (call_id,) = self.say(None, ("transition", arguments))
        move = factories.move(
            "waiting_human", "ask", reason="question", reason_data={"question": question}, terminal=False
        )
        values = {"pending_question": asked, "pending_call": call_id}
        self.write(what=Commit.END, parks=(call_id,), move=move, values=values)

    def end(
        self, state: str, event: str, reason: str, data: dict[str, Any] | None = None, **values: Any
    ) -> None:
        terminal = state != "paused"
        if not terminal:
            values = {"resume_state": "queued"} | values
        move = factories.move(state, event, reason=reason, reason_data=data, terminal=terminal)
        self.write(what=Commit.END, move=move, values=values)

    def succeed(self, result: str = "Done.") -> None:
        (call_id,) = self.say(None, ("transition", {"next_step": "COMPLETE", "summary": result}))
        self.answer(call_id, "accepted", "transition")
        self.end("succeeded", "succeed", "completed", result=result)
