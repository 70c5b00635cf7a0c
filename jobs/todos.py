"""The agent's todo list. Its state is the last valid `todo_write` call in the transcript; it has no table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.arguments import BadArguments, decode_arguments
from storage import transcript
from storage.engine import Database

TODO_WRITE = "todo_write"
STATUSES = ("pending", "in_progress", "completed")
MOST_TODOS = 200

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "maxItems": MOST_TODOS,
            "description": "the whole list, in the order of the work; it replaces the one before",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": ["string", "integer"], "description": "stays the same from call to call"},
                    "content": {"type": "string", "minLength": 1, "maxLength": 2000},
                    "status": {"type": "string", "enum": list(STATUSES)},
                },
                "required": ["id", "content", "status"],
            },
        }
    },
    "required": ["todos"],
}


@dataclass(frozen=True, slots=True)
class Todo:
    """One item. `status`: pending, in_progress or completed."""

    id: str
    content: str
    status: str

    @property
    def is_open(self) -> bool:
        return self.status != "completed"


@dataclass(frozen=True, slots=True)
class TodoList:
    """The list as its last call left it; `seq` is that call's message, 0 where there was none."""

    seq: int = 0
    items: tuple[Todo, ...] = ()

    @property
    def open_items(self) -> tuple[Todo, ...]:
        return tuple(todo for todo in self.items if todo.is_open)


def read_todos(arguments: str) -> tuple[Todo, ...]:
    """The list of one call in the transcript. Raises BadArguments.

    The decoder is the one that the call itself went through, so that replay and life always agree.
    """
    return todos_of(decode_arguments(arguments, PARAMETERS))


def todos_of(arguments: dict[str, Any]) -> tuple[Todo, ...]:
    """The list of decoded arguments, in their order; of items with the same id, the last."""
    found = [Todo(str(item["id"]), item["content"], item["status"]) for item in arguments["todos"]]
    last = {todo.id: index for index, todo in enumerate(found)}
    return tuple(todo for index, todo in enumerate(found) if last[todo.id] == index)


def current_todos(db: Database, job_id: str) -> TodoList:
    """The job's list, replayed from its transcript. Calls that failed, or of another format, are passed over."""
    found = transcript.newest_call(db, job_id, TODO_WRITE, _read_or_none)
    return TodoList(*found) if found else TodoList()


def _read_or_none(arguments: str) -> tuple[Todo, ...] | None:
    try:
        return read_todos(arguments)
    except BadArguments:
        return None


def as_json(todos: Sequence[Todo]) -> str:
    """The list as the model reads it."""
    return json.dumps({"todos": [asdict(todo) for todo in todos]}, ensure_ascii=False)


def todo_lines(todos: Sequence[Todo]) -> str:
    """The list for a prompt or a page: one line an item, with its status."""
    return "\n".join(f"- [{todo.status}] {todo.id}: {' '.join(todo.content.split())}" for todo in todos)
