"""A job's past as bars: what it waited for, and what its time went to, one below the other.

Made of the state changes and of the transcript's times alone, a bounded part at once. The bars follow each other without
gaps, so that a place on the axis is the sum of what came before; a long wait is drawn shortened, and says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.installation import Installation
from jobs.states import TERMINAL, State
from jobs.web.words import Words
from storage.looking_back import events_before
from storage.records import HistoryEvent
from storage.timeline import Moment, moments_before, open_call

ROWS = 150
WAITS = {
    State.QUEUED: "queue", State.INHERITING: "queue", State.PAUSED: "paused", State.WAITING_HUMAN: "human",
    State.WAITING_SUBTASKS: "subtasks", State.COMPRESSING: "compaction",
}  # fmt: skip
IDLE = ("queue", "paused", "human", "subtasks")
LEAST_LONG = 1.0  # second: a shorter wait is none to shorten
SHARE_OF_WAIT = 0.25  # of all work that is shown: a longer wait is drawn as long as this
LEAST_SHOWN = 0.4  # percent of the axis


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time. `kind`: model, tool, own, compaction or one of IDLE; `end` None: it goes on."""

    kind: str
    name: str
    start: float
    end: float | None
    seq: int = 0  # of the message that it brought
    tokens: int = 0
    failed: bool = False
    x: float = 0.0  # percent of the axis
    width: float = 0.0
    cut: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that took no time: a claim, a movement, a worker's death, an end."""

    kind: str
    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The part that is shown, oldest first, and the place before it."""

    rows: list[Bar | Mark]
    totals: dict[str, float] = field(default_factory=dict)
    first: tuple[int, int] = (1, 1)

    @property
    def has_older(self) -> bool:
        return max(self.first) > 1


def waterfall_of(
    installation: Installation, job_id: str, state: str, before: tuple[int, int] | None
) -> Waterfall:
    """The newest part, or the one before a place. Its cost hangs on the part alone."""
    db = installation.db
    before_event, before_message = before or (None, None)
    events = events_before(db, job_id, before_event, ROWS)
    moments = moments_before(db, job_id, before_message, ROWS)
    both: list[Iterable[HistoryEvent | Moment]] = [events, moments]
    merged = list(heapq.merge(*both, key=_when, reverse=True))[:ROWS]
    first = (_first(events, merged), _first(moments, merged))
    builder = _Builder()
    for row in reversed(merged):
        builder.add(row)
    if before is None and state not in TERMINAL:
        last = max((row.seq for row in moments if row.role == "assistant"), default=0)
        call = open_call(db, job_id, last) if state == State.RUNNING and last else None
        builder.go_on(state, None if call is None else call.name)
    rows = _placed(builder.rows, installation.db.clock())
    totals: dict[str, float] = {}
    for bar in rows:
        if isinstance(bar, Bar):
            totals[bar.kind] = totals.get(bar.kind, 0.0) + bar.seconds
    return Waterfall(rows, totals, first)


def _first(found: Sequence[HistoryEvent] | Sequence[Moment], shown: Sequence[Any]) -> int:
    if not found:
        return 1
    return min((row.seq for row in shown if type(row) is type(found[0])), default=found[0].seq + 1)


def _when(row: HistoryEvent | Moment) -> tuple[float, bool]:
    """Of one commit, the messages come before the change of state that they led to."""
    return (row.at, True) if isinstance(row, HistoryEvent) else (row.created_at, False)


class _Builder:
    """Takes rows in the order of time, and knows since when what lasts."""

    def __init__(self) -> None:
        self.rows: list[Bar | Mark] = []
        self._since: float | None = None
        self._state: str | None = None

    def add(self, row: HistoryEvent | Moment) -> None:
        if isinstance(row, HistoryEvent):
            self._event(row)
        else:
            self._moment(row)

    def go_on(self, state: str, call: str | None) -> None:
        """What lasts until now."""
        if self._since is None:
            return
        if state == State.RUNNING:
            self._bar("tool" if call else "model", call or "", None)
        elif state in WAITS:
            self._bar(WAITS[State(state)], "", None)

    def _event(self, event: HistoryEvent) -> None:
        data = event.data or {}
        if event.kind == "movement":
            self.rows.append(Mark("movement", str(data.get("movement", "")), event.at))
        if event.to_state is None:
            if event.kind == "submit":
                self._since, self._state = event.at, State.QUEUED
            return
        before = event.from_state or self._state
        if before in WAITS and event.kind != "submit":
            self._bar(WAITS[State(before)], str(data.get("reason", "")), event.at)
        elif before == State.RUNNING and event.kind == "lease_expired":
            self._bar("own", "", event.at, failed=True)
        if event.kind in ("claim", "lease_expired") or event.to_state in TERMINAL:
            self.rows.append(Mark(event.kind, event.actor, event.at))
        self._since, self._state = event.at, event.to_state

    def _moment(self, moment: Moment) -> None:
        if self._since is None:
            self._since = moment.created_at
            return
        if moment.role == "assistant":
            self._bar("model", "", moment.created_at, seq=moment.seq, tokens=moment.tokens)
        elif moment.role == "tool":
            self._since = max(self._since, moment.called_at or 0.0)
            bar = {"seq": moment.seq, "tokens": moment.tokens, "failed": moment.is_error}
            self._bar("tool", moment.tool_name or "", moment.created_at, **bar)
        self._since = max(self._since, moment.created_at)

    def _bar(self, kind: str, name: str, end: float | None, **more: Any) -> None:
        if self._since is not None:
            start = self._since if end is None else min(self._since, end)
            self.rows.append(Bar(kind, name, start, end, **more))


def _placed(rows: list[Bar | Mark], now: float) -> list[Bar | Mark]:
    """With their places on an axis on which long waits are short."""
    lasted = [
        max((now if row.end is None else row.end) - row.start, 0.0) for row in rows if isinstance(row, Bar)
    ]
    work = sum(
        seconds
        for row, seconds in zip((row for row in rows if isinstance(row, Bar)), lasted, strict=True)
        if row.kind not in IDLE
    )
    most = work * SHARE_OF_WAIT or float("inf")
    drawn = list(_drawn(rows, lasted, most))
    whole = sum(drawn) or 1.0
    placed: list[Bar | Mark] = []
    x, number = 0.0, 0
    for row in rows:
        if isinstance(row, Mark):
            placed.append(row)
            continue
        width = 100 * drawn[number] / whole
        shown = min(max(width, LEAST_SHOWN), 100 - min(x, 100 - LEAST_SHOWN))
        cut = drawn[number] < lasted[number]
        at = min(x, 100 - LEAST_SHOWN)
        placed.append(replace(row, x=round(at, 2), width=round(shown, 2), cut=cut, seconds=lasted[number]))
        x += width
        number += 1
    return placed


def _drawn(rows: list[Bar | Mark], lasted: list[float], most: float) -> Iterator[float]:
    bars = [row for row in rows if isinstance(row, Bar)]
    for bar, seconds in zip(bars, lasted, strict=True):
        yield min(seconds, most) if bar.kind in IDLE and seconds > LEAST_LONG else seconds


def short_time(seconds: float, words: Words) -> str:
    """A duration for a narrow column: 340 ms, 2.4 s, 3 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 1:
        return words("time.ms", count=round(seconds * 1000))
    if seconds < 60:
        return words("time.s", count=f"{seconds:.1f}".removesuffix(".0"))
    minutes = int(seconds) // 60
    if minutes < 60:
        return words("time.min", first=minutes, second=int(seconds) % 60)
    if minutes < 48 * 60:
        return words("time.h", first=minutes // 60, second=minutes % 60)
    return words("time.d", first=minutes // 1440, second=minutes // 60 % 24)
