"""How the demo is told: who did what and when, in 80 columns; and in the end what that was worth."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobs.cli import render
from jobs.cli.text import clean, one_line
from jobs.states import Event
from storage.records import HistoryEvent, Message

if TYPE_CHECKING:
    from jobs.cli.following import Update

WIDTH = 80
_TEXT_AT = 24  # columns before the text: time, who, step
_STYLES = {"A": "cyan", "B": "magenta"}
_MOST_LINES = 3
_SHOWN_RESULTS = frozenset({"Bash", "Grep"})


class Story:
    """Tells what a job's rows say. Workers are called A and B; `nodes` maps their full names to these letters."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self._nodes = nodes
        self._who = ""
        self.steps = 0

    def tell(self, update: Update) -> None:
        """Tell what is new."""
        for item in update.news:
            if isinstance(item, HistoryEvent):
                self._tell_event(item, update)
            else:
                self._tell_message(item)

    def say(self, who: str, text: str, style: str = "", *, step: str = "", at: float | None = None) -> None:
        """One line with its time."""
        moment = datetime.fromtimestamp(time.time() if at is None else at).astimezone()
        text = f"{step:<8}{text}" if step else text
        self._line((f"{moment:%H:%M:%S}  ", "dim"), (f"{who:<6}", _STYLES.get(who, "bold")), (text, style))

    def more(self, text: str, style: str = "dim", *, indent: int = _TEXT_AT) -> None:
        """A line below the last one."""
        self._line((" " * indent + text, style))

    def _tell_event(self, event: HistoryEvent, update: Update) -> None:
        data = event.data or {}
        if event.kind == Event.CLAIM:
            self._who = self._nodes.get(event.actor, "?")
            goes_on = f" and goes on after step {self.steps}" if self.steps else ""
            self.say(self._who, f"takes the job{goes_on}", at=event.at)
        elif event.kind == "movement":
            self.say(self._who, f"movement {data.get('movement')}", "bold", at=event.at)
        elif event.kind == Event.LEASE_EXPIRED:
            lost = self._nodes.get(str(data.get("worker")), "?")
            self.say(
                "", f"the lease of worker {lost} has run out: the job is free again", "yellow", at=event.at
            )
        elif event.kind == Event.REQUEUE:
            self.say("", f"back in the queue: {update.job.reason_text or update.job.state}", at=event.at)

    def _tell_message(self, message: Message) -> None:
        if message.role == "assistant":
            self.steps += 1
            calls = message.tool_calls or []
            texts = [message.content or "", *(_call_text(call) for call in calls)]
            texts = [line for text in texts for line in _short(text)] or ["(nothing)"]
            self.say(self._who, texts[0], step=f"step {self.steps}", at=message.created_at)
            for text in texts[1:]:
                self.more(text, "")
        elif message.role == "tool" and message.is_error:
            for line in _short(message.content or ""):
                self.more(line, "yellow")
        elif message.role == "tool" and message.tool_name in _SHOWN_RESULTS:
            lines = (message.content or "").strip().splitlines()
            for line in lines[:_MOST_LINES]:
                self.more(f"  {line}")
            if len(lines) > _MOST_LINES:
                self.more(f"  … {len(lines) - _MOST_LINES} more lines")

    def _line(self, *parts: tuple[str, str]) -> None:
        render.line(*_fitted(parts))
        sys.stdout.flush()


def wrapped(text: str, indent: int, style: str = "", *, head: tuple[str, str] | None = None) -> None:
    """A paragraph, wrapped and indented; `head`, as wide as the indent, begins its first line."""
    start = head or (" " * indent, "")
    for line in _lines(text, indent):
        render.line(start, (line, style))
        start = (" " * indent, "")


def show_cut(text: str) -> None:
    """A line as it is, cut at the width."""
    render.line(*_fitted([(text, "")]))


def _short(text: str) -> list[str]:
    """What is said, in a few lines; a call in one, which is cut where it is shown."""
    if text.startswith("→ "):
        return [text]
    lines = _lines(clean(text), _TEXT_AT)
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1] + "…"]


def _call_text(call: dict[str, Any]) -> str:
    """A call in one line: the tool, and what matters of its arguments."""
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        arguments = {}
    if call["name"] == "transition":
        return _transition_text(arguments)
    told = [str(arguments[name]) for name in ("command", "pattern", "path") if name in arguments]
    return f"→ {call['name']} {one_line(' '.join(told), 300)}"


def _transition_text(arguments: dict[str, Any]) -> str:
    step, summary = arguments.get("next_step"), one_line(str(arguments.get("summary", "")), 300)
    if step == "ASK":
        return f"asks: {summary}"
    return f"{'done' if step == 'COMPLETE' else step}: {summary}"


def _lines(text: str, indent: int) -> list[str]:
    """The text broken at its blanks. Our own words: no character of them is wider than one column."""
    return textwrap.wrap(text, _width() - indent, break_on_hyphens=False)


def _width() -> int:
    return min(WIDTH, render.console().width)


def _fitted(parts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The parts cut to the width in columns, in which a Japanese character takes two."""
    from rich.cells import cell_len, set_cell_size

    room, fitted = _width(), []
    for text, style in parts:
        line = clean(text).replace("\n", " ").replace("\t", " ")
        if cell_len(line) > room:
            line = set_cell_size(line, max(room - 1, 0)).rstrip() + "…"
        room -= cell_len(line)
        fitted.append((line, style))
    return fitted
