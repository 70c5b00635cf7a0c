"""What of a conversation a compaction takes out, and which results are only shortened. Pure functions over rows.

    system, head, summary │ group │ group │ … │ group │ group         a group: assistant → all its results → user texts
    pinned                │ taken into the summary    │ kept

A cut lies between two groups, so that a call and its results are never parted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from storage.records import Message
from worker import transition
from worker.reminders import reminder_kind
from worker.tokens import estimate_tokens

TRIM_CHARS = 2_000  # a longer result may be shortened
TRIM_HEAD, TRIM_TAIL = 600, 200  # characters kept of it
TURNS = ("assistant", "tool", "gap")


@dataclass(frozen=True, slots=True)
class Cut:
    """`taken` goes into the summary; `tail_seq` is the first row that stays."""

    taken: tuple[Message, ...]
    tail_seq: int
    kept: int  # estimated tokens of what stays after it


def choose_cut(
    rows: Sequence[Message], *, keep_recent: int, min_to_compress: int, most_kept: int, trim_seq: int = 0
) -> Cut | None:
    """Where to cut a view's rows; None where it is not worth it, or a call is still unanswered.

    The newest `keep_recent` messages stay, and what belongs to them; fewer where they alone would take more than
    `most_kept` (estimated) tokens, but the last group always. A person's words just before the first kept reply stay
    with it.
    """
    turns = [row for row in rows if row.kind in TURNS]
    groups = grouped(turns)
    if not groups or _is_open(groups[-1]):
        return None
    first = _first_kept(groups, keep_recent, most_kept, trim_seq)
    taken = [row for group in groups[:first] for row in group]
    # What stood before the first reply is not a group of its own: it is taken with the first.
    before = [row for row in turns if row.seq < groups[0][0].seq]
    taken = [*before, *taken]
    taken = taken[: len(taken) - _last_words(taken)]
    if len(taken) < min_to_compress:
        return None
    kept = [row for row in turns if row.seq > taken[-1].seq]
    return Cut(tuple(taken), kept[0].seq, sum(shown_tokens(row, trim_seq) for row in kept))


def _last_words(rows: Sequence[Message]) -> int:
    """How many rows at the end begin with a person's words: what was said since the last reply, and reminders after it."""
    last = list(
        takewhile(lambda row: row.kind == "gap" and "images" not in (row.extra or {}), reversed(rows))
    )
    while last and reminder_kind(last[-1]) is not None:
        last.pop()
    return len(last)


def replies_left_out(rows: Sequence[Message], taken: Sequence[Message]) -> int:
    """How many replies a summary of `taken` stands for, with those of the summary that the view's rows begin with."""
    earlier = [(row.extra or {}).get("replies", 0) for row in rows if row.kind == "summary"]
    return max(earlier, default=0) + sum(row.role == "assistant" for row in taken)


def grouped(turns: Sequence[Message]) -> list[list[Message]]:
    """The turns in groups: a reply, its results, the user texts after them."""
    groups: list[list[Message]] = []
    for row in turns:
        if row.role == "assistant":
            groups.append([row])
        elif groups:
            groups[-1].append(row)
    return groups


def _is_open(group: Sequence[Message]) -> bool:
    answered = {row.tool_call_id for row in group}
    return any(call["id"] not in answered for call in group[0].tool_calls or ())


def _first_kept(groups: Sequence[Sequence[Message]], keep_recent: int, most_kept: int, trim_seq: int) -> int:
    """The index of the first group that stays."""
    first, messages, tokens = len(groups) - 1, 0, 0
    for index in range(len(groups) - 1, -1, -1):
        tokens += sum(shown_tokens(row, trim_seq) for row in groups[index])
        if messages and (messages >= keep_recent or tokens > most_kept):
            break
        first = index
        messages += len(groups[index])
    return first


# --- results that are only shortened ---


def is_trimmed(row: Message, trim_seq: int) -> bool:
    """Whether the row is shown shortened. An answer of a person, or what subtasks brought, never is."""
    return (
        row.seq < trim_seq
        and row.role == "tool"
        and row.tool_name != transition.NAME
        and len(row.content or "") > TRIM_CHARS
    )


def trimmed(row: Message) -> str:
    """The content of a shortened result; the whole stays in the transcript."""
    text = row.content or ""
    left_out = len(text) - TRIM_HEAD - TRIM_TAIL
    notice = (
        f"[… {left_out} characters of this old result are left out; recall with seq={row.seq} shows them …]"
    )
    return f"{text[:TRIM_HEAD]}\n{notice}\n{text[len(text) - TRIM_TAIL :]}"


def shown_tokens(row: Message, trim_seq: int) -> int:
    """What a row costs in a request, estimated: a shortened one what is left of it."""
    return estimate_tokens(trimmed(row)) if is_trimmed(row, trim_seq) else row.tokens


def freed_by_trimming(rows: Sequence[Message], trim_seq: int, before: int) -> int:
    """Estimated tokens that showing the results before `trim_seq` shortened frees; `before` is the present trim_seq."""
    return sum(
        row.tokens - estimate_tokens(trimmed(row))
        for row in rows
        if is_trimmed(row, trim_seq) and not is_trimmed(row, before)
    )
