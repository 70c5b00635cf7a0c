"""Reminders: `<system-reminder>` blocks that the worker appends at the end of the conversation, never further up.

Only rows that carry the mark `reminder` go out with these tags; the same tags in files, todos or comments are made
neutral on the wire (see `worker.layout`), so that nothing else can speak in the system's name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobs.todos import TODO_WRITE, Todo, todo_lines
from storage import transcript
from storage.records import Message, NewMessage
from worker.tokens import estimate_tokens

if TYPE_CHECKING:
    from worker.job_run import JobRun

STEPS_WITHOUT_TODO_WRITE = 5
MARK = "reminder"  # key of a row's `extra`
TODOS = "todos"
LISTED_CHARS = 4000
_OPEN = "<system-reminder>\n"
_CLOSE = "\n</system-reminder>"
_TAG = re.compile(r"<(?=\s*/?\s*system[\s_-]*reminder)", re.IGNORECASE)


def reminder(kind: str, text: str) -> NewMessage:
    """A reminder as a row to append."""
    content = f"{_OPEN}{text}{_CLOSE}"
    return NewMessage("user", "gap", content, extra={MARK: kind}, tokens=estimate_tokens(content))


def reminder_kind(row: Message) -> str | None:
    """What a row reminds of; None for any other row."""
    kind: str | None = (row.extra or {}).get(MARK)
    return kind


def on_the_wire(row: Message) -> str:
    """A row's text for the model: reminder tags that are not ours are neutral."""
    text = row.content or ""
    if reminder_kind(row) is None:
        return neutral(text)
    inner = text.removeprefix(_OPEN).removesuffix(_CLOSE)
    return f"{_OPEN}{neutral(inner)}{_CLOSE}"


def neutral(text: str) -> str:
    """`text` with the bracket of every reminder tag as an entity, so that it reads as text."""
    return _TAG.sub("&lt;", text) if "<" in text else text


def todo_reminder(job: JobRun) -> NewMessage | None:
    """The one reminder of open todos that follows 5 steps without a todo_write; none again until the next one."""
    if TODO_WRITE not in job.tools or not _steps_are_up(job.rows):
        return None
    todos = job.todos
    if not todos.open_items or _was_given(job, todos.seq):
        return None
    return reminder(TODOS, _todo_text(todos.open_items))


def _steps_are_up(rows: list[Message]) -> bool:
    """Looks no further back than these steps: the same cost in a conversation of any length."""
    steps = 0
    for row in reversed(rows):
        if reminder_kind(row) == TODOS:
            return False
        if row.role == "tool" and row.tool_name == TODO_WRITE and not row.is_error:
            return False
        steps += row.role == "assistant"
        if steps == STEPS_WITHOUT_TODO_WRITE:
            return True
    return False


def _was_given(job: JobRun, seq: int) -> bool:
    """Whether this list's reminder was given before: further up, in an earlier visit, or before a compaction."""
    if job.reminded_of != seq:
        if not transcript.any_gap(job.process.db, job.job_id, seq, lambda extra: extra.get(MARK) == TODOS):
            return False
        job.reminded_of = seq
    return True


def _todo_text(todos: tuple[Todo, ...]) -> str:
    return (
        f"You have not touched your todo list for {STEPS_WITHOUT_TODO_WRITE} steps. Still open:\n"
        f"{listed(todos)}\n"
        "Write the list anew with todo_write if it is no longer true, and go on. Do not answer this reminder."
    )


def listed(todos: tuple[Todo, ...]) -> str:
    """Todo lines of a bounded length, with the number of those left out."""
    lines = todo_lines(todos)
    if len(lines) <= LISTED_CHARS:
        return lines
    kept = lines[:LISTED_CHARS].rpartition("\n")[0] or lines[:LISTED_CHARS]
    left = len(todos) - (kept.count("\n") + 1)
    return f"{kept}\n… and {left} more" if left else f"{kept} […cut]"
