"""From a job's records to what the page shows of them: the instruction, what was said, calls, comments, turns.

Each item has an id that its record gives it, so that showing it twice shows it once.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.api.chunks import when
from jobs.installation import Installation
from jobs.pieces.model import ABORT, ASK, COMPLETE, WAIT_SUBTASKS
from jobs.web.safe_text import clipped
from storage import jobs as store
from storage import looking_back, summaries
from storage.observing import CallRow
from storage.records import Comment, HistoryEvent, Message, Summary

PAGE = 80
_FEW = 20
REPLACED = 60
_MOST_PARTS = 5
TRANSITION = "transition"
_TOLD_BY_OTHERS = frozenset(
    {"time", "files", "comments", "instruction"}
)  # blocks that the page shows elsewhere
_LINES = frozenset(
    {
        "pause_requested", "pause_withdrawn", "pause", "resume", "resume_inheriting", "resume_compressing",
        "resume_waiting_human", "resume_waiting_subtasks", "exhaust_budget", "budget_raised", "cancel_requested",
        "cancel", "retry", "lease_expired", "fail", "abort", "succeed", "subtask", "subtasks_done", "hook_failed",
        "inherited", "compaction_discarded", "summary_failed",
    }
)  # fmt: skip
_SHORT_ARGUMENTS = ("command", "path", "pattern", "query", "url", "name", "title", "instruction")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in the conversation. `kind` names its template; `update`: only where it is shown already."""

    id: str
    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)
    update: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Items in their order, and the places before and after them: (history, transcript) numbers."""

    items: list[Item]
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def has_older(self) -> bool:
        return max(self.first) > 1


def newest(installation: Installation, job_id: str, before: tuple[int, int] | None = None) -> Part:
    """The last part of the conversation, or of what is older than a place. Its cost hangs on the part alone.

    Where most of it are records that are not shown, it goes back further, a few times.
    """
    part = _part(installation, job_id, before)
    for _ in range(_MOST_PARTS):
        if len(part.items) >= _FEW or not part.has_older:
            break
        older = _part(installation, job_id, part.first)
        known = {item.id for item in older.items}
        kept = [item for item in part.items if item.id not in known]
        part = Part([*older.items, *kept], older.first, part.last)
    return part


def replaced(installation: Installation, job_id: str, summary: Summary, before: int | None) -> Part:
    """What a summary stands for, from its end or from before a message on: turns only, a bounded part."""
    last = summary.last_seq + 1 if before is None else min(before, summary.last_seq + 1)
    rows = looking_back.messages_before(installation.db, job_id, last, REPLACED)[::-1]
    kept = [row for row in rows if row.seq >= summary.first_seq]
    first = kept[0].seq if kept and kept[0].seq > summary.first_seq else 1
    items = [item for item in items_of(installation, job_id, kept) if not item.update]
    return Part(items, (1, first), (0, kept[-1].seq if kept else 0))


def _part(installation: Installation, job_id: str, before: tuple[int, int] | None) -> Part:
    db = installation.db
    before_event, before_message = before or (None, None)
    events = looking_back.events_before(db, job_id, before_event, PAGE)
    messages = looking_back.messages_before(db, job_id, before_message, PAGE)
    both: list[Iterable[HistoryEvent | Message]] = [events, messages]
    merged = list(heapq.merge(*both, key=when, reverse=True))[:PAGE]
    first = (_oldest(events, merged), _oldest(messages, merged))
    last = (events[0].seq if events else 0, messages[0].seq if messages else 0)
    items = items_of(installation, job_id, merged[::-1])
    # A comment is read with what became of it: its delivery is news only to who shows it already.
    return Part([item for item in items if not (item.update and item.kind == "comment")], first, last)


def _oldest(
    found: Sequence[HistoryEvent] | Sequence[Message], shown: Sequence[HistoryEvent | Message]
) -> int:
    """The number before which the older part of a sequence ends."""
    if not found:
        return 1
    return min((row.seq for row in shown if type(row) is type(found[0])), default=found[0].seq + 1)


def items_of(installation: Installation, job_id: str, rows: Sequence[HistoryEvent | Message]) -> list[Item]:
    """What rows of both sequences show, in their order, with the calls, results and comments that belong to them."""
    related = _Related(installation, job_id, rows)
    return [item for row in rows for item in _items(row, related)]


class _Related:
    """What the rows refer to, read at once."""

    def __init__(
        self, installation: Installation, job_id: str, rows: Sequence[HistoryEvent | Message]
    ) -> None:
        db = installation.db
        messages = [row for row in rows if isinstance(row, Message)]
        events = [row for row in rows if isinstance(row, HistoryEvent)]
        said = {row.seq for row in messages if row.tool_calls}
        answered = {row.tool_call_id for row in messages if row.tool_call_id}
        self.calls = looking_back.calls_of_messages(db, job_id, said, answered) if said or answered else []
        self.by_id = {call.call_id: call for call in self.calls}
        self.here = said
        known = {row.seq: row for row in messages}
        missing = {call.result_seq for call in self.calls if call.result_seq} - known.keys()
        self.messages = known | {row.seq: row for row in looking_back.messages_numbered(db, job_id, missing)}
        numbers = {_number(event) for event in events if event.kind == "comment"}
        found = looking_back.comments_numbered(db, job_id, numbers) if numbers else []
        self.comments: dict[int, Comment] = {comment.number: comment for comment in found}
        prompts = {row.seq for row in messages if row.role != "assistant"}
        delivered = looking_back.comments_seen_with(db, job_id, prompts) if prompts else []
        self.delivered: dict[int, list[Comment]] = {}
        for comment in delivered:
            self.delivered.setdefault(comment.seen_seq or 0, []).append(comment)
        compacted = {row.seq for row in messages if row.kind == "summary"}
        self.summaries = {
            summary.message_seq: summary
            for summary in (summaries.summaries_of_messages(db, job_id, compacted) if compacted else [])
        }
        submitted = any(event.kind == "submit" for event in events)
        self.instruction = store.get_inputs(db, job_id)[0] if submitted else ""

    def result(self, call: CallRow) -> Message | None:
        return self.messages.get(call.result_seq) if call.result_seq else None


def _number(event: HistoryEvent) -> int:
    number = (event.data or {}).get("number")
    return number if isinstance(number, int) else 0


def _items(row: HistoryEvent | Message, related: _Related) -> Iterator[Item]:
    if isinstance(row, Message):
        for comment in related.delivered.get(row.seq, []):
            if comment.kind == "comment":
                yield _comment_item(comment, update=True)
    if isinstance(row, HistoryEvent):
        yield from _of_event(row, related)
    elif row.role == "assistant":
        yield from _of_reply(row, related)
    elif row.role == "tool":
        call = related.by_id.get(row.tool_call_id or "")
        if call is not None and call.message_seq not in related.here:
            yield _call_item(call, related, row.created_at, update=True)
    else:
        yield from _of_prompt(row, related)


def _of_event(event: HistoryEvent, related: _Related) -> Iterator[Item]:
    data = event.data or {}
    item_id = f"e-{event.seq}"
    if event.kind == "submit":
        yield Item(item_id, "instruction", event.at, {"author": event.actor, "text": related.instruction})
    elif event.kind == "comment":
        comment = related.comments.get(_number(event))
        if comment is not None:
            yield _comment_item(comment)
    elif event.kind in _LINES:
        yield Item(item_id, "line", event.at, {"what": event.kind, "actor": event.actor, "data": data})


def _comment_item(comment: Comment, *, update: bool = False) -> Item:
    return Item(f"n-{comment.number}", "comment", comment.created_at, {"comment": comment}, update)


def _of_reply(row: Message, related: _Related) -> Iterator[Item]:
    reasoning = (row.extra or {}).get("reasoning")
    if (row.content and row.content.strip()) or reasoning:
        data = {"text": row.content or "", "reasoning": reasoning or "", "seq": row.seq}
        yield Item(f"m-{row.seq}", "said", row.created_at, data)
    for call in related.calls:
        if call.message_seq == row.seq:
            yield _call_item(call, related, row.created_at)


def _of_prompt(row: Message, related: _Related) -> Iterator[Item]:
    extra = row.extra or {}
    item_id = f"m-{row.seq}"
    data = {"text": row.content or "", "seq": row.seq}
    if row.kind == "system":
        yield Item(item_id, "movement", row.created_at, data | {"movement": extra.get("movement") or ""})
    elif row.kind == "summary":
        yield Item(item_id, "compaction", row.created_at, data | {"summary": related.summaries.get(row.seq)})
    elif row.kind != "head" or extra.get("block") not in _TOLD_BY_OTHERS:
        name = extra.get("block") or extra.get("reminder") or row.kind
        yield Item(item_id, "told", row.created_at, data | {"name": str(name), "images": _images(row)})


def _images(row: Message | None) -> list[dict[str, Any]]:
    """What the row notes of images that the model was shown with it, or is to be shown after it."""
    noted = (row.extra or {}).get("images") if row is not None else None
    return [image for image in noted or () if isinstance(image, dict) and "sha" in image]


def _call_item(call: CallRow, related: _Related, at: float, *, update: bool = False) -> Item:
    result = related.result(call)
    arguments = _arguments(call.arguments)
    kind = "call"
    if call.name == TRANSITION and arguments is not None and not (call.is_error and result):
        kind = _ENDINGS.get(str(arguments.get("next_step")), "handover")
    data = {
        "call": call,
        "arguments": arguments or {},
        "pretty": _pretty(call.arguments, arguments),
        "short": _short(call.arguments, arguments),
        "result": result,
        "images": _images(result),
    }
    return Item(f"c-{call.message_seq}-{call.position}", kind, at, data, update)


_ENDINGS = {COMPLETE: "done", ASK: "asked", ABORT: "gave_up", WAIT_SUBTASKS: "waits"}


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _pretty(text: str, arguments: dict[str, Any] | None) -> str:
    """Arguments for reading: one to a line, long texts as they are rather than as JSON."""
    if arguments is None:
        return text
    lines: list[str] = []
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    return "\n".join(lines)


def _short(text: str, arguments: dict[str, Any] | None) -> str:
    """What tells a call from others of its tool, on one line."""
    if arguments is None:
        return clipped(text, 120)
    told: Iterable[Any] = [arguments[name] for name in _SHORT_ARGUMENTS if name in arguments]
    first = next((value for value in told if isinstance(value, str) and value.strip()), None)
    if first is None:
        first = ", ".join(f"{name}: {clipped(value, 60)}" for name, value in list(arguments.items())[:3])
    return clipped(first, 120)
