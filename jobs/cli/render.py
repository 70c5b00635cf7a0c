"""How jobs, history and messages are shown to people: with colours on a terminal, plain in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jobs.cli.text import clean, one_line
from jobs.durations import format_duration
from jobs.states import State

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.views import JobView
    from storage.records import HistoryEvent, Message

STATE_STYLES = {
    "inheriting": "cyan",
    "queued": "cyan",
    "running": "blue",
    "compressing": "magenta",
    "paused": "yellow",
    "waiting_human": "bold yellow",
    "waiting_subtasks": "yellow",
    "succeeded": "green",
    "failed": "red",
    "aborted": "red",
    "cancelled": "dim",
}
SUMMARY_TEXTS = {
    "pending": "to be written by a worker of the context queue",
    "done": "read it with: sostenuto summaries {id}",
    "failed": "could not be written: sostenuto watch {id} says why; jobs that follow read its last messages",
}
SHORT_ID = 8
_SAID_BY_MESSAGES = frozenset(
    {"summary", "lessons", "findings"}
)  # of a transition: its call is shown beside it
_PIPE_WIDTH = 100_000  # nothing is wrapped or cut for a program that reads


@cache
def console() -> Console:
    """Standard output. Text is given as `Text`, never as markup: brackets in it are just brackets."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=None if on_terminal() else _PIPE_WIDTH)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def note(text: str) -> None:
    """A remark for people on stderr; a pipe's reader is not bothered with it."""
    if sys.stderr.isatty():
        print(clean(text), file=sys.stderr)


def short(job_id: str) -> str:
    """The end of an id, which tells jobs of the same minute apart; commands take it for the whole."""
    return job_id[-SHORT_ID:]


def line(*parts: str | tuple[str, str]) -> None:
    """Print one line of parts, each a text or (text, style), cleaned and never cut."""
    from rich.text import Text

    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(clean(words), style)
    console().print(text, soft_wrap=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[str | tuple[str, str]]]) -> None:
    """Columns with headings on a terminal, the last one cut to fit; tab-separated rows in a pipe."""
    if not on_terminal():
        for row in rows:
            print("\t".join(one_line(cell if isinstance(cell, str) else cell[0], 1000) for cell in row))
        return
    from rich.cells import cell_len, set_cell_size

    cells = [[_cut(cell) for cell in row] for row in [[(heading, "dim") for heading in headings], *rows]]
    widths = [max(cell_len(text) for text, _ in column) for column in zip(*cells, strict=True)]
    widths[-1] = max(10, min(widths[-1], console().width - sum(widths[:-1]) - 2 * (len(widths) - 1)))
    for row in cells:
        *padded, last = [
            (
                set_cell_size(
                    text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…", width
                ),
                style,
            )
            for (text, style), width in zip(row, widths, strict=True)
        ]
        line(*((text + "  ", style) for text, style in padded), (last[0].rstrip(), last[1]))


def _cut(cell: str | tuple[str, str]) -> tuple[str, str]:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return one_line(text, 300), style


def ago(seconds: float) -> str:
    """How long since, or until, a moment."""
    gone = time.time() - seconds
    return f"{format_duration(gone)} ago" if gone >= 0 else f"in {format_duration(-gone)}"


def moment(seconds: float) -> str:
    """A moment in local time, and how far away it is."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S} ({ago(seconds)})"


def job_line(job: JobView) -> list[str | tuple[str, str]]:
    """One row of the list on a terminal."""
    state = (job.state, STATE_STYLES.get(job.state, ""))
    return [
        short(job.id),
        state,
        format_duration(max(0.0, time.time() - job.created_at)),
        str(job.steps),
        job.title,
    ]


def state_text(job: JobView) -> str:
    """The state and why, without saying the same twice."""
    if not job.reason_text or job.state == State.SUCCEEDED:
        return job.state
    reason = one_line(job.reason_text, 500)
    return reason if reason.startswith(job.state) else f"{job.state}: {reason}"


def job_page(job: JobView, children: Sequence[JobView] = ()) -> None:
    """Everything about one job."""
    style = STATE_STYLES.get(job.state, "")
    _field("job", job.id)
    _field("title", job.title)
    _field("state", state_text(job), style)
    _field("next", job.next_action)
    _field("piece", f"{job.piece}, movement {job.movement}")
    _field("spent", f"{_count(job.steps, 'step')}, {_count(job.tokens, 'token')}, {cost_text(job)}")
    limits = [
        f"{name.removeprefix('max_')} {limit:,g}" for name, limit in job.budget.items() if limit is not None
    ]
    _field("limits", ", ".join(limits))
    _field("parent", job.parent_id)
    _field("inherits", job.inherits_from)
    _field("summary", SUMMARY_TEXTS.get(job.summary_state, "").format(id=short(job.id)))
    _field("attempt", str(job.attempt) if job.attempt else None)
    _field("worker", job.worker)
    _field("model", job.model)
    labels = [job.task_type, job.repository, job.task_identifier, job.user]
    _field("about", " ".join(label for label in labels if label) if any(labels[1:]) else None)
    _field("comments", f"{job.unread_comments} not read yet" if job.unread_comments else None)
    _field("created", moment(job.created_at))
    if job.state == "queued" and job.available_at > time.time():
        _field("due", moment(job.available_at))
    _field("started", None if job.started_at is None else moment(job.started_at))
    _field("ended", None if job.completed_at is None else moment(job.completed_at))
    if children:
        line()
        line((f"subtasks ({job.children_open} of {job.children_total} unfinished)", "bold"))
        for child in children:
            style = STATE_STYLES.get(child.state, "")
            line(child.id, "  ", (f"{child.state:<10}", style), "  ", one_line(child.title, 300))
    question_lines(job)
    for heading, text in (("result", job.result), ("error", job.error)):
        if text:
            line()
            line((heading, "bold"))
            line(text.rstrip())


def question_lines(job: JobView) -> None:
    """A question that waits: whole, with its choices, and what happens if nobody answers."""
    question = job.pending_question
    if question is None:
        return
    line()
    line(("question", "bold"))
    line(question["question"].rstrip())
    for number, choice in enumerate(question.get("choices", []), 1):
        line((f"{number:>3}  ", "bold"), one_line(choice, 500))
    if "until" in question:
        line((f"answered by itself {moment(question['until'])}:", "dim"))
        line((question["default_answer"].rstrip(), "dim"))


def cost_text(job: JobView) -> str:
    """The cost, and whether it is all."""
    if job.cost_known:
        return f"cost {job.cost:g}"
    return f"cost unknown, at least {job.cost:g}" if job.cost else "cost unknown"


def _field(name: str, value: str | None, style: str = "") -> None:
    if value:
        line((f"{name:<9} ", "dim"), (value, style))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def event_line(event: HistoryEvent) -> None:
    """One line of a job's history: a change of state with its reason, or what else happened."""
    data = {name: value for name, value in (event.data or {}).items() if name not in _SAID_BY_MESSAGES}
    what = str(data.pop("reason", event.kind)).replace("_", " ")
    if event.kind in data:  # "movement work" instead of "movement, movement work"
        what = f"{event.kind} {data.pop(event.kind)}"
    known = [f"{name} {value}" for name, value in data.items() if value not in (None, "", [], {})]
    detail = ", ".join([what, *known])
    tail = (f"  {one_line(detail, 200)} · {one_line(event.actor, 60)}", "dim")
    if event.to_state:
        change = f"{event.from_state} → {event.to_state}" if event.from_state else event.to_state
        line((_clock(event.at), "dim"), "  ", (change, STATE_STYLES.get(event.to_state, "")), tail)
    else:
        line((_clock(event.at), "dim"), tail)


def message_lines(message: Message) -> None:
    """A message as it comes, in a few lines; what the system itself puts before the model is left out."""
    clock = (_clock(message.created_at), "dim")
    width = max(40, min(console().width, 200) - 20)
    if message.role == "assistant":
        if message.content and message.content.strip():
            line(clock, "  ", one_line(message.content, width * 3))
        for call in message.tool_calls or []:
            line(
                clock, "  ", (f"→ {one_line(call['name'], 60)} ", "bold"), one_line(call["arguments"], width)
            )
    elif message.role == "tool":
        style = "red" if message.is_error else "dim"
        content = message.content or ""
        size = f"  ({len(content):,} characters)" if len(content) > width else ""
        line(clock, "  ", (f"← {one_line(content, width)}{size}", style))


def usage_text(extra: Mapping[str, Any]) -> str:
    """What a reply took: tokens as the endpoint counted them, "about" where it did not; empty for other messages."""
    if "prompt_tokens" not in extra:
        return ""
    about = "about " if extra.get("estimated") else ""
    cached = f" ({extra['cached_tokens']:,} of them cached)" if extra.get("cached_tokens") else ""
    cost = f", cost {extra['cost']:.6g}" if extra.get("cost") else ""
    return (
        f"{extra.get('model', 'model')}: {about}{extra['prompt_tokens']:,} tokens in{cached}, "
        f"{extra['completion_tokens']:,} out{cost}"
    )


def whole_message(message: Message, *, most: int | None, summarised_by: int | None = None) -> None:
    """A message of the transcript, its text cut after `most` characters; which summary stands for it now."""
    heading = (
        message.role
        if message.kind in {message.role, "assistant", "tool"}
        else f"{message.role} ({message.kind})"
    )
    name = f" {one_line(message.tool_name, 60)}" if message.tool_name else ""
    failed = ", error" if message.is_error else ""
    gone = f" · now in summary {summarised_by}" if summarised_by is not None else ""
    line((f"── {message.seq} {heading}{name}{failed} · {_clock(message.created_at)}{gone}", "bold"))
    for text in [message.content, *(_call(call) for call in message.tool_calls or [])]:
        if text:
            cut = most is not None and len(text) > most
            line((text[:most] if cut else text).rstrip())
            if cut:
                line((f"… {len(text) - (most or 0):,} more characters (--full)", "dim"))
    if told := usage_text(message.extra or {}):
        line((told, "dim"))
    line()


def _call(call: dict[str, Any]) -> str:
    return f"→ {call['name']} {call['arguments']}"


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%H:%M:%S}"
