"""Checklists: named lists whose items are ticked off one by one. Their state is replayed from the transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from jobs.arguments import BadArguments, decode_arguments
from storage import transcript
from storage.engine import Database
from storage.records import DoneCall

CREATE = "checklist_create"
TICK = "checklist_tick"
LIST = "checklist_list"
MOST_CHECKLISTS = 50

_NAME = {
    "type": "string",
    "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
    "description": "small letters, digits, - and _",
}
PARAMETERS: dict[str, dict[str, Any]] = {
    CREATE: {
        "type": "object",
        "properties": {
            "name": _NAME,
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": 200,
                "items": {"type": "string", "minLength": 1, "maxLength": 500},
                "description": "what is to be checked, each on its own",
            },
        },
        "required": ["name", "items"],
    },
    TICK: {
        "type": "object",
        "properties": {
            "name": _NAME,
            "item": {"type": "integer", "minimum": 1, "description": "the item's number"},
            "done": {"type": "boolean", "description": "false takes the tick away; default: true"},
            "note": {"type": "string", "maxLength": 500, "description": "what was seen"},
        },
        "required": ["name", "item"],
    },
    LIST: {"type": "object", "properties": {"name": _NAME}},
}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to check."""

    text: str
    done: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Checklist:
    """A list as its calls left it. Its items are numbered from 1."""

    name: str
    items: tuple[Item, ...]

    @property
    def done(self) -> int:
        return sum(item.done for item in self.items)

    def lines(self) -> str:
        """The list for a prompt or a page."""
        rows = [f"{self.name} ({self.done} of {len(self.items)} done)"]
        for number, item in enumerate(self.items, 1):
            note = f" ({' '.join(item.note.split())})" if item.note else ""
            rows.append(f"{number}. [{'x' if item.done else ' '}] {' '.join(item.text.split())}{note}")
        return "\n".join(rows)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [
            {"number": number, "text": item.text, "done": item.done, "note": item.note}
            for number, item in enumerate(self.items, 1)
        ]
        return {"name": self.name, "items": rows}


Checklists = dict[str, Checklist]  # by name, in the order of their making


class Refused(Exception):
    """A call that does not fit the lists as they are; the message is for the model."""


def apply(lists: Checklists, name: str, arguments: dict[str, Any]) -> Checklist:
    """Carries one decoded call out on `lists`, and returns the list it changed. Raises Refused.

    The same when a call runs and when it is replayed.
    """
    wanted = arguments["name"]
    if name == CREATE:
        if wanted in lists:
            raise Refused(f"there is a checklist {wanted} already; tick its items, or choose another name")
        if len(lists) >= MOST_CHECKLISTS:
            raise Refused(f"there are {MOST_CHECKLISTS} checklists already, the most a job may have")
        lists[wanted] = Checklist(wanted, tuple(Item(text) for text in arguments["items"]))
    else:
        lists[wanted] = _ticked(find(lists, wanted), arguments)
    return lists[wanted]


def find(lists: Checklists, name: str) -> Checklist:
    """The list of this name. Raises Refused."""
    if name not in lists:
        known = ", ".join(lists) or "none"
        raise Refused(f"there is no checklist {name}; there are: {known}")
    return lists[name]


def _ticked(found: Checklist, arguments: dict[str, Any]) -> Checklist:
    number = arguments["item"]
    if number > len(found.items):
        raise Refused(f"checklist {found.name} has {len(found.items)} items, none with the number {number}")
    items = list(found.items)
    items[number - 1] = Item(
        items[number - 1].text, arguments.get("done", True), arguments.get("note", items[number - 1].note)
    )
    return replace(found, items=tuple(items))


def current_checklists(db: Database, job_id: str) -> Checklists:
    """The job's lists, replayed from its transcript. Calls that failed, or of another format, are passed over."""
    return replayed(transcript.good_calls(db, job_id, [CREATE, TICK]))


def replayed(calls: Iterable[DoneCall]) -> Checklists:
    """The lists after these calls."""
    lists: Checklists = {}
    for call in calls:
        try:
            apply(lists, call.name, decode_arguments(call.arguments, PARAMETERS[call.name]))
        except (BadArguments, Refused):
            continue
    return lists
