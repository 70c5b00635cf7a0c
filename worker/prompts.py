"""What a movement's agent is told at its start: the system message and the blocks of the head.

Built once, when the movement starts, and stored: later requests repeat it byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from jobs.pieces import ABORT, ASK, COMPLETE, WAIT_SUBTASKS, Movement
from jobs.workspace import Listing, human
from storage.records import Comment
from worker.tokens import estimate_tokens
from worker.tools.text import prefix_that_fits

THREAD_REMARKS = 5
REMARK_CHARS = 500
UNREAD_SHOWN = 20
UNREAD_CHARS = 4000
LEAST_UNREAD_TOKENS = 500
FILES_CHARS = 20_000
INSTRUCTION_FILE = "logs/instruction.md"
INSTRUCTION_CUT = (
    "[The task goes on: {shown} of its {all} characters are shown here, it is too long for the context. All of it is in the "
    "file {file}: read it on in parts.]"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the head; `name` tells later readers (and the layout) what it is."""

    name: str
    text: str


def system_prompt(movement: Movement, tool_names: Sequence[str]) -> str:
    """Persona, what to do, how to work, how to end."""
    parts = [
        movement.persona.strip(),
        f"Movement: {movement.name}\n\n{movement.instruction.strip()}",
        _workplace(tool_names),
        _endings(movement),
    ]
    if movement.output_contract:
        parts.append(f"## What you hand over\n{movement.output_contract.strip()}")
    return "\n\n".join(parts)


def _workplace(tool_names: Sequence[str]) -> str:
    return (
        "## Your workplace\n"
        "Your workspace has input/ (what you were given), output/ (what you deliver) and logs/ (the system's). "
        "Paths are relative to it. Every step you take is recorded; after an interruption you go on from the last one. "
        "If a result says that an outcome is unknown, verify it before you repeat the action.\n"
        f"Tools: {', '.join(tool_names)}."
    )


_MEANINGS = {
    COMPLETE: "ends the job; your summary is what the person reads",
    ASK: "asks the person your summary as a question and waits for the answer",
    ABORT: "gives the job up; your summary says why",
    WAIT_SUBTASKS: "waits until all subtasks have ended",
}


def _endings(movement: Movement) -> str:
    lines = ["## How this movement ends", "Call `transition` with one of:"]
    conditions = {rule.next: rule.condition for rule in movement.rules}
    for step in movement.next_steps:
        meaning = _MEANINGS.get(step, f"goes on with the movement {step}")
        lines.append(f"- {step}: {meaning}" + (f" — when {conditions[step]}" if step in conditions else ""))
    lines.append(
        "A reply without any tool call does not end it. Lessons you give are handed to the next movement."
    )
    return "\n".join(lines)


def time_block(now: float, zone: tzinfo) -> Block:
    """Date, weekday, time and time zone."""
    moment = datetime.fromtimestamp(now, zone)
    offset = moment.strftime("%z")
    name = getattr(zone, "key", None) or moment.tzname() or "local"
    text = f"{moment:%Y-%m-%d} ({moment:%A}) {moment:%H:%M}, time zone {name} (UTC{offset[:3]}:{offset[3:]})"
    return Block("time", f"## Now\n{text}")


def remarks_block(
    job_id: str, remarks: Sequence[Comment], unread: Sequence[Comment], zone: tzinfo
) -> Block | None:
    """The thread's last remarks, cut; unread comments that are not whole here are announced by number."""
    if not remarks and not unread:
        return None
    shown = remarks[-THREAD_REMARKS:]
    lines = ["## Comments", *(remark_line(remark, zone, REMARK_CHARS, job_id) for remark in shown)]
    own = [remark for remark in shown if remark.job_id == job_id]
    whole = {remark.number for remark in own if len(remark.text) <= REMARK_CHARS}
    missing = [remark.number for remark in unread if remark.number not in whole]
    if missing:
        lines.append(_announcement(missing))
    return Block("comments", "\n".join(lines))


def unread_text(unread: Sequence[Comment], zone: tzinfo, room: int) -> str:
    """Comments that arrived while the agent worked, for the gap before its next call: the newest 20 at most.

    They take about `room` tokens (at least 500) in all; what is cut or left out for it is announced.
    """
    shown: list[str] = []
    cut: list[int] = []
    left = max(room, LEAST_UNREAD_TOKENS)
    for remark in reversed(unread[-UNREAD_SHOWN:]):
        limit = UNREAD_CHARS
        if estimate_tokens(remark.text[:limit]) > left:
            if shown:
                break
            limit = left // 2  # no script takes more than two tokens a character
        shown.append(remark_line(remark, zone, limit))
        left -= estimate_tokens(shown[-1])
        if len(remark.text) > limit:
            cut.append(remark.number)
    missing = [remark.number for remark in unread[: len(unread) - len(shown)]] + cut[::-1]
    lines = ["New comments:", *reversed(shown)]
    if missing:
        lines.append(_announcement(missing))
    return "\n".join(lines)


def remark_line(remark: Comment, zone: tzinfo, limit: int, reader: str | None = None) -> str:
    """One remark with its number, author and time, its text cut at `limit` characters.

    One of another job than the `reader`'s (in the same thread) names that job instead: its number means nothing here.
    """
    moment = datetime.fromtimestamp(remark.created_at, zone).strftime("%Y-%m-%d %H:%M")
    kind = "" if remark.kind == "comment" else f" ({remark.kind})"
    text = remark.text if len(remark.text) <= limit else f"{remark.text[:limit]} […cut]"
    place = f"job {remark.job_id[-8:]}" if reader not in (None, remark.job_id) else str(remark.number)
    return f"[{place}] {remark.author}{kind}, {moment}: {text}"


def _announcement(numbers: Sequence[int]) -> str:
    listed = ", ".join(str(number) for number in numbers[:50])
    more = f" and {len(numbers) - 50} more" if len(numbers) > 50 else ""
    return f"Not shown in full: {len(numbers)} unread ({listed}{more}). Read them with read_comments."


def files_block(listing: Listing) -> Block:
    """What lies in input/ and output/, with the total where not all is listed."""
    if not listing.entries:
        return Block("files", "## Files\ninput/ and output/ are empty.")
    lines: list[str] = []
    left = FILES_CHARS
    for entry in listing.entries:
        line = f"{_visible(entry.path)} ({_size(entry.kind, entry.size)})"
        if (left := left - len(line) - 1) < 0:
            break
        lines.append(line)
    if listing.total > len(lines) or not listing.complete:
        total = f"{listing.total}" if listing.complete else f"at least {listing.total}"
        lines.append(f"… {total} files in all; find the others with Glob.")
    return Block("files", "\n".join(["## Files", *lines]))


def _visible(path: str) -> str:
    """A path on one line: a file's name may hold line ends, and must not look like a block of its own."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), path)


def _size(kind: str, size: int) -> str:
    return human(size) if kind == "file" else kind


def lessons_block(lessons: str, *, japanese: bool) -> Block | None:
    """What earlier movements hand over, under the heading of the job's language."""
    if not lessons:
        return None
    heading = "前のステップで得た教訓" if japanese else "Lessons from earlier steps"
    return Block("lessons", f"## {heading}\n{lessons}")


def instruction_block(instruction: str, most_tokens: int | None = None) -> Block:
    """The job's instruction, as it was given, last in the head.

    Of one that would take more than `most_tokens` the beginning, and where all of it is.
    """
    if most_tokens is None or estimate_tokens(instruction) <= most_tokens:
        return Block("instruction", f"## Task\n{instruction}")
    shown = instruction[: prefix_that_fits(instruction, most_tokens)]
    notice = INSTRUCTION_CUT.format(shown=len(shown), all=len(instruction), file=INSTRUCTION_FILE)
    return Block("instruction", f"## Task\n{shown}\n\n{notice}")
