"""A transcript as plain text, for a model that is to read about a conversation, not to take part in it.

No tool messages and no calls go to the summariser: many servers refuse them without schemas, and a model that sees
calls makes calls. Pure functions over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from storage.records import Message
from worker import transition
from worker.reminders import neutral, reminder_kind
from worker.tokens import estimate_tokens
from worker.tools.text import prefix_that_fits, suffix_that_fits

# The task is given to the summariser apart; the others are told to each movement anew.
_SKIPPED_BLOCKS = {"time", "files", "instruction", "lessons", "todos", "checklists", "git"}
_HEAD_SHARE = 0.7
_NOTICE_TOKENS = 15


@dataclass(frozen=True, slots=True)
class Entry:
    """What one row tells. `from_person`: people's words, which are to survive word for word."""

    text: str
    from_person: bool = False

    def within(self, room: int) -> Entry:
        """Shortened so that no single entry fills the room: a quarter of it at most, people's words half."""
        return replace(self, text=shortened(self.text, room // 2 if self.from_person else room // 4))


def flatten(rows: Iterable[Message]) -> Iterator[Entry]:
    """One entry for each row that has something to tell, in order.

    Left out: the agent's own prompts, the task, earlier summaries (they cover rows that are here, or are handed on
    whole), and reminders.
    """
    for row in rows:
        text = _text(row)
        if text:
            yield Entry(text, from_person=row.kind == "gap" or row.tool_name == transition.NAME)


def _text(row: Message) -> str | None:
    extra = row.extra or {}
    if row.kind == "system":
        return f"── the movement {extra['movement']} begins" if "movement" in extra else None
    if row.kind == "summary" or reminder_kind(row) is not None:
        return None
    if row.kind == "head" and extra.get("block") in _SKIPPED_BLOCKS:
        return None
    parts = [(row.content or "").strip()]
    parts += [f"→ {call['name']} {call['arguments']}" for call in row.tool_calls or ()]
    parts += [image_in_words(image) for image in extra.get("images", ())]
    told = "\n".join(part for part in parts if part)
    return f"[{row.seq}] {_speaker(row)}\n{neutral(told)}" if told else None


def _speaker(row: Message) -> str:
    if row.role == "tool":
        return f"result of {row.tool_name}" + (" (error)" if row.is_error else "")
    return "the agent" if row.role == "assistant" else "to the agent"


def image_in_words(image: dict[str, Any]) -> str:
    """An image as its name and size."""
    return f"[image {image.get('path') or ''} {image.get('width', '?')}×{image.get('height', '?')}]"


def shortened(text: str, budget: int) -> str:
    """`text` if it fits into `budget` tokens, else its head and its tail, and how much is left out between them."""
    if estimate_tokens(text) <= budget:
        return text
    room = max(budget - _NOTICE_TOKENS, 2)
    for_head = max(int(room * _HEAD_SHARE), 1)
    head = prefix_that_fits(text, for_head)
    tail = min(suffix_that_fits(text, room - for_head), len(text) - head)
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} characters left out …]\n{text[len(text) - tail :]}"
