"""What is true of every job after everything that happens, recounted from its rows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from jobs.pieces.model import ASK, WAIT_SUBTASKS
from jobs.states import LEASED, TERMINAL, TRANSITIONS, Event, State
from storage.engine import Database
from storage.models import comments, job_events, jobs, messages, runs, summaries, tool_calls

TABLES = (runs, job_events, comments, messages, tool_calls, summaries)
EVENTS = {str(event): event for event in Event}
Rows = list[dict[str, Any]]
TOKEN = re.compile(r"\bword-\d+\b")  # each comment of a story holds one of its own


class Book:
    """Every row of the database, as of one moment."""

    def __init__(self, db: Database) -> None:
        self._rows: dict[str, dict[str, Rows]] = {}
        with db.read() as conn:
            self.jobs = {row.id: row._asdict() for row in conn.execute(sa.select(jobs).order_by(jobs.c.id))}
            for table in TABLES:
                grouped: dict[str, Rows] = {job_id: [] for job_id in self.jobs}
                for row in conn.execute(sa.select(table).order_by(*table.primary_key.columns)):
                    grouped[row.job_id].append(row._asdict())
                self._rows[table.name] = grouped

    def of(self, table: sa.Table, job_id: str) -> Rows:
        return self._rows[table.name][job_id]

    def written(self, job_id: str) -> dict[str, Any]:
        """All that a run may write about a job: for a comparison. Its lease times and its end are no such thing."""
        found: dict[str, Any] = {table.name: self.of(table, job_id) for table in TABLES if table is not runs}
        return found | {"job": self.jobs[job_id]}


class Inspector:
    """Looks at the whole database after each thing that happened, and remembers how it was before."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.book = Book(db)

    def look(self) -> Book:
        """AssertionError where something is not as it must be."""
        book = Book(self._db)
        for job_id, row in book.jobs.items():
            check_row(book, row)
            check_history(row, book.of(job_events, job_id))
            check_calls(row, book.of(messages, job_id), book.of(tool_calls, job_id))
            check_comments(book, row)
            check_counts(book, row)
            if job_id in self.book.jobs:
                check_progress(self.book, book, job_id)
        self.book = book
        return book


def check_row(book: Book, row: dict[str, Any]) -> None:
    """Its state, its end, its run: at most one that lives, and only while the state has one."""
    state = State(row["state"])
    assert (row["completed_at"] is not None) == (state in TERMINAL)
    assert row["run_id"] is None or state in LEASED
    assert row["run_id"] is not None or state is not State.RUNNING
    assert (row["resume_state"] is not None) == (state is State.PAUSED)
    assert (row["reason"] is None) == (state is State.RUNNING)
    if state is not State.RUNNING:
        assert not row["pause_requested"]
        assert not row["cancel_requested"]
    live = [run for run in book.of(runs, row["id"]) if run["ended_at"] is None]
    working = [run["id"] for run in live if run["kind"] != "summary"]
    writing = [run["id"] for run in live if run["kind"] == "summary"]
    assert working == ([row["run_id"]] if row["run_id"] else [])
    assert writing == ([row["summary_run_id"]] if row["summary_run_id"] else [])
    assert not writing or (row["summary_state"] == "pending" and state in TERMINAL)
    asks = state is State.WAITING_HUMAN or row["resume_state"] == State.WAITING_HUMAN
    assert (row["pending_call"] is not None) == asks
    if state is State.INHERITING:
        assert row["inherits_from"] is not None


def check_history(row: dict[str, Any], history: Rows) -> None:
    """Events are gapless, and every change of state is one that the table of transitions has."""
    assert [event["seq"] for event in history] == list(range(1, row["event_seq"] + 1))
    moves = [event for event in history if event["to_state"] is not None and event["kind"] in EVENTS]
    for event in moves:
        if event["from_state"] is not None:
            known = TRANSITIONS.get((State(event["from_state"]), EVENTS[event["kind"]]))
            assert known == event["to_state"], (
                f"{event['from_state']} --{event['kind']}--> {event['to_state']}"
            )
    for before, after in pairwise(moves):
        assert after["from_state"] in (before["to_state"], None)
    if moves:
        assert moves[-1]["to_state"] == row["state"]


def check_calls(row: dict[str, Any], transcript: Rows, calls: Rows) -> None:
    """Each call has one result, right after its reply; only the last reply's may still be open, or parked."""
    replies = [message for message in transcript if message["role"] == "assistant"]
    wanted = [call["id"] for reply in replies for call in reply["tool_calls"] or ()]
    results = Counter(message["tool_call_id"] for message in transcript if message["role"] == "tool")
    assert not [call for call, count in results.items() if count != 1]
    assert set(results) <= set(wanted)
    last = {call["id"] for call in (replies[-1]["tool_calls"] or ())} if replies else set()
    without = set(wanted) - set(results)
    assert without <= last
    noted = {call["call_id"]: call for call in calls}
    assert sorted(noted) == sorted(wanted)
    for call_id, call in noted.items():
        assert (call["state"] == "done") == (call_id in results)
        assert call["state"] != "parked" or call["name"] == "transition"
    if row["state"] in (State.WAITING_HUMAN, State.WAITING_SUBTASKS):
        parked = [call for call in calls if call["state"] == "parked"]
        assert [call["call_id"] for call in parked] == sorted(without)
        step = ASK if row["state"] == State.WAITING_HUMAN else WAIT_SUBTASKS
        assert all(step in call["arguments"] for call in parked)


def check_comments(book: Book, row: dict[str, Any]) -> None:
    """Each comment that counts as seen was shown, once; each other one was not."""
    inbox = book.of(comments, row["id"])
    assert [comment["number"] for comment in inbox] == list(range(1, row["inbox_total"] + 1))
    assert 0 <= row["inbox_seen"] <= row["inbox_total"]
    shown: Counter[str] = Counter()
    begun: set[str] = set()
    announced = ""
    for message in book.of(messages, row["id"]):
        found = TOKEN.findall(message["content"] or "")
        if message["kind"] == "head":
            begun.update(found)
            announced += (message["content"] or "").partition("Not shown in full:")[2]
        elif message["kind"] in ("gap", "tool"):
            shown.update(found)
    for comment in inbox:
        for token in TOKEN.findall(comment["text"]) if comment["kind"] == "comment" else ():
            assert shown[token] <= 1, f"comment {comment['number']} was shown {shown[token]} times"
            told = shown[token] or token in begun or str(comment["number"]) in re.findall(r"\d+", announced)
            taken = comment["answers_call"] is not None and shown[token]
            assert bool(told) == (comment["number"] <= row["inbox_seen"]) or taken, (
                f"comment {comment['number']}"
            )


def check_counts(book: Book, row: dict[str, Any]) -> None:
    """The counters of the row are what counting gives."""
    transcript = book.of(messages, row["id"])
    made = book.of(summaries, row["id"])
    replies = [message for message in transcript if message["role"] == "assistant"]
    assert [message["seq"] for message in transcript] == list(range(1, row["total_messages"] + 1))
    assert row["total_tool_calls"] == sum(message["role"] == "tool" for message in transcript)
    assert [summary["number"] for summary in made] == list(range(1, row["total_summaries"] + 1))
    assert row["steps"] == len(replies)
    children = [child for child in book.jobs.values() if child["parent_id"] == row["id"]]
    assert row["children_total"] == len(children)
    assert row["children_open"] == sum(State(child["state"]) not in TERMINAL for child in children)
    for kind in ("prompt_tokens", "completion_tokens"):
        told = sum((reply["extra"] or {})[kind] for reply in replies) + sum(summary[kind] for summary in made)
        assert row[kind] >= told  # and what a reply cost that could not be used
    state = State(row["state"])
    if state in TERMINAL or state is State.PAUSED:
        context = [m for m in transcript if _in_view(row, m)]
        assert row["final_message_count"] == len(context)
        assert row["final_token_count"] == row["context_tokens"]


def _in_view(row: dict[str, Any], message: dict[str, Any]) -> bool:
    seq: int = message["seq"]
    if not row["visit_seq"] or seq < row["visit_seq"]:
        return False
    pinned = message["kind"] in ("system", "head") or seq == row["summary_seq"]
    return pinned or seq >= max(row["visit_seq"], row["tail_seq"])


_DELIVERY = ("seen_seq", "seen_step")  # of a comment: noted once, when the agent has it


def _as_before(then: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The row without what may have been noted on it since."""
    undelivered = {name: None for name in _DELIVERY if name in then and then["seen_step"] is None}
    return row | undelivered


def check_progress(before: Book, now: Book, job_id: str) -> None:
    """What was written stays as it was; counters only grow; an end is left by a retry alone."""
    for table in (messages, job_events, comments, summaries):
        old, new = before.of(table, job_id), now.of(table, job_id)
        kept = [_as_before(then, row) for then, row in zip(old, new, strict=False)]
        assert kept == old, f"{table.name} that were written have changed"
    was, row = before.jobs[job_id], now.jobs[job_id]
    for name in (
        "steps",
        "prompt_tokens",
        "completion_tokens",
        "inbox_seen",
        "visit",
        "epoch",
        "active_seconds",
    ):
        assert row[name] >= was[name], f"{name} went back"
    if State(was["state"]) in TERMINAL and row["state"] != was["state"]:
        came = now.of(job_events, job_id)[len(before.of(job_events, job_id)) :]
        assert came[0]["kind"] == Event.RETRY or any(event["kind"] == Event.RETRY for event in came)
    assert row["run_id"] != was["run_id"] or row["run_id"] is None or row["attempt"] == was["attempt"]
    ended = {run["id"]: run for run in before.of(runs, job_id) if run["ended_at"] is not None}
    again = {run["id"]: run for run in now.of(runs, job_id)}
    assert all(again[run_id] == run for run_id, run in ended.items()), "a run that had ended has changed"
