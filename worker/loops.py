"""Agents that go round in circles: the same calls with the same results, or a few of them in turn; or calls, however
different, of which none can be run.

Seen from the rows of the present view, and only the last few: nothing is counted anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from jobs.reasons import Reason
from jobs.states import Event
from storage.records import Checkpoint, Commit, Message, NewMessage
from worker.endings import Ending, end
from worker.job_run import JobRun
from worker.reminders import TODOS, reminder, reminder_kind

WARN_AFTER = 10  # steps in the loop
STOP_AFTER = 5  # more steps of the same loop after the warning
LONGEST_PERIOD = 3  # A, or A and B in turn, or A, B and C
NOT_RUN = "not_run"  # of a result's extra: there is no such tool, or its arguments are broken
LOOP = "loop"
STOPPED = "loop_stopped"

WARNING = (
    "You are going round in circles: {what}. Repeating it will not change the outcome. Stop and think: what do these "
    "results tell you? Try a different way, or end this movement with `transition` and say what is missing. If you are "
    "waiting for something, wait longer between two looks. If you go on like this, the job is stopped."
)
STOP_TEXT = "The job was stopped here because it went round in circles: {what}. Go another way now."


@dataclass(frozen=True, slots=True)
class Turn:
    """One step: what was called, what came back, and whether a warning stands right after it."""

    calls: tuple[tuple[str, str], ...]
    results: tuple[str | None, ...]
    ran: bool  # at least one of the calls
    warned: bool = False

    def same_as(self, other: Turn) -> bool:
        return self.calls == other.calls and self.results == other.results


@dataclass(frozen=True, slots=True)
class Circle:
    """The loop that the last steps form. `after_warning` is None where the model was not warned of it yet.

    `period` 0: no circle, but steps of which none ran a call.
    """

    steps: int
    period: int
    names: tuple[str, ...]
    after_warning: int | None

    @property
    def what(self) -> str:
        if self.period == 0:
            return f"no call of {self.steps} replies in a row could be run"
        tools = " and ".join(self.names)
        if self.period == 1:
            return f"the same call of {tools} with the same result, {self.steps} times in a row"
        return f"the same calls of {tools} in turn with the same results, for {self.steps} steps"


def loop_warning(job: JobRun) -> NewMessage | None:
    """The one warning of the loop that the agent is in now."""
    circle = _circle_of(job)
    if circle is None or circle.after_warning is not None:
        return None
    return reminder(LOOP, WARNING.format(what=circle.what))


def end_if_looping(job: JobRun) -> Ending | None:
    """Fails a job that went on in its loop after the warning. After a retry it reads why, and its steps count anew."""
    circle = _circle_of(job)
    if circle is None or circle.after_warning is None or circle.after_warning < STOP_AFTER:
        return None
    told = reminder(STOPPED, STOP_TEXT.format(what=circle.what))
    return end(
        job,
        Event.FAIL,
        Reason.LOOP,
        {"detail": circle.what},
        checkpoint=Checkpoint(Commit.END, messages=[told]),
    )


def _circle_of(job: JobRun) -> Circle | None:
    """`find_circle` of the job's rows, looked for once where nothing came in between."""
    last = job.rows[-1].seq
    if job.circle is None or job.circle[0] != last:
        job.circle = (last, find_circle(job.rows))
    return job.circle[1]


def find_circle(rows: Sequence[Message]) -> Circle | None:
    """The loop at the end of the conversation, if it is at least 10 steps long: a circle, else calls in vain."""
    turns = _last_turns(rows, WARN_AFTER + STOP_AFTER + 1)
    if len(turns) < WARN_AFTER:
        return None
    for period in range(1, LONGEST_PERIOD + 1):
        pairs = zip(turns, turns[period:], strict=False)
        steps = period + sum(1 for _ in takewhile(lambda pair: pair[0].same_as(pair[1]), pairs))
        if steps >= WARN_AFTER:
            names = dict.fromkeys(name for turn in turns[period - 1 :: -1] for name, _ in turn.calls)
            return Circle(steps, period, tuple(names), _after_warning(turns[:steps]))
    in_vain = [*takewhile(lambda turn: not turn.ran, turns)]
    return Circle(len(in_vain), 0, (), _after_warning(in_vain)) if len(in_vain) >= WARN_AFTER else None


def _after_warning(turns: Sequence[Turn]) -> int | None:
    return next((index for index, turn in enumerate(turns) if turn.warned), None)


def _last_turns(rows: Sequence[Message], most: int) -> list[Turn]:
    """The last steps, newest first, back to whatever was new to the model: a person's words, or a text of its own."""
    turns: list[Turn] = []
    results: dict[str | None, str | None] = {}
    warned = ran = False
    for row in reversed(rows):
        if row.role == "tool":
            results[row.tool_call_id] = row.content
            ran |= NOT_RUN not in (row.extra or {})
        elif row.role == "assistant":
            calls = row.tool_calls or []
            if not calls or len(turns) == most:
                break
            names = tuple((call["name"], call["arguments"]) for call in calls)
            turns.append(Turn(names, tuple(results.get(call["id"]) for call in calls), ran, warned))
            results, warned, ran = {}, False, False
        elif reminder_kind(row) == LOOP:
            warned = True
        elif reminder_kind(row) != TODOS:
            break
    return turns
