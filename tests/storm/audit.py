"""The recount after a storm: which jobs were lost, repeated or stuck, and why.

`lost`: something that was accepted or committed is not there, or did not come to its rightful end. `repeated`: a
committed step ran or was asked for again, a comment was consumed twice, a call took effect twice though it may not.
`stuck`: it would never end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jobs.reasons import Reason
from jobs.states import TERMINAL, Event, State
from storage.final_summaries import PENDING
from storage.records import Message
from tests.storm.evidence import Effect, Evidence, JobRecord
from tests.storm.mind import COMMENT, FINAL, STEP
from tests.storm.traffic import Note
from worker.agent import INTERRUPTED
from worker.decisions import UNREAD

LOST, REPEATED, STUCK = "lost", "repeated", "stuck"
CLOCKS = 1.0  # seconds by which two clocks of one machine, and a commit and its time, may differ
NOTED = ("count", "mark")
CANCELLING = (
    "Error: not begun: this job is being cancelled."  # of a subtask; after a retry the job goes on without it
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that must not be."""

    kind: str
    job_id: str
    why: str


def audit(evidence: Evidence) -> list[Fault]:
    """Every fault that the evidence shows; none after a storm that was weathered."""
    faults = list(_submissions(evidence))
    for record in evidence.records.values():
        note = evidence.notes.get(record.id, Note())
        faults += _end(record, note)
        faults += _counters(record)
        faults += _runs(record)
        faults += _steps(record)
        faults += _requests(record, evidence)
        faults += _effects(record, evidence)
        faults += _comments(record, note, evidence)
        faults += _family(record, evidence)
        faults += _legacy(record, evidence)
        faults += _hooks(record, evidence)
    faults += [Fault(LOST, label.partition("/")[0], text) for label, text in evidence.violations]
    return faults


def unknown_outcomes(record: JobRecord) -> int:
    """How many calls were answered with "outcome unknown"."""
    return sum(message.content == INTERRUPTED for message in record.messages)


def recoveries(evidence: Evidence) -> list[tuple[float, str]]:
    """Seconds from a worker's death to the next claim of each job that it had, where nobody paused it meanwhile."""
    found = []
    for record in evidence.records.values():
        for run, following in pairwise(run for run in record.runs if run["kind"] != "summary"):
            died = evidence.died.get(_pid(run["worker"]))
            if run["outcome"] != "lost" or died is None or run["claimed_at"] > died:
                continue
            paused = any(
                event.to_state == State.PAUSED and died <= event.at <= following["claimed_at"]
                for event in record.events
            )
            if not paused:
                found.append((following["claimed_at"] - died, record.id))
    return found


def _pid(worker: str) -> int:
    return int(worker.partition("@")[0].rpartition("-")[2])


def _submissions(evidence: Evidence) -> Iterator[Fault]:
    """Each submission that was answered has its one job, under the id that was told."""
    keys = Counter(record.row["idempotency_key"] for record in evidence.records.values())
    for key in evidence.submitted.keys() - evidence.unanswered:
        if keys[key] != 1:
            yield Fault(LOST if not keys[key] else REPEATED, key, f"a submission has {keys[key]} jobs")
    for job_id in evidence.notes.keys() - evidence.records.keys():
        yield Fault(LOST, job_id, "it was accepted, and the database has no such job")


def _end(record: JobRecord, note: Note) -> Iterator[Fault]:
    row, state = record.row, State(record.row["state"])
    if state not in TERMINAL:
        yield Fault(STUCK, record.id, f"it is {state} ({row['reason']}: {row['reason_data']})")
    elif state not in note.ends:
        yield Fault(LOST, record.id, f"it ended as {state}: {row['error_message']}")
    elif state is State.SUCCEEDED and not str(row["result"]).startswith("result of t"):
        yield Fault(LOST, record.id, f"its result is {row['result']!r}")
    if row["summary_state"] == PENDING:
        yield Fault(STUCK, record.id, f"its summary is pending after {row['summary_attempts']} attempts")
    if state in TERMINAL and row["children_open"]:
        yield Fault(STUCK, record.id, f"it has ended, and {row['children_open']} subtasks are open")


def _counters(record: JobRecord) -> Iterator[Fault]:
    """The numbers on the job's row are those of a recount, and nothing is missing between them."""
    row, messages = record.row, record.messages
    replies = [message for message in messages if message.role == "assistant"]
    calls = [call["id"] for message in replies for call in message.tool_calls or ()]
    recount = {
        "total_messages": [message.seq for message in messages],
        "event_seq": [event.seq for event in record.events],
        "inbox_total": [comment.number for comment in record.comments],
        "total_summaries": [summary.number for summary in record.summaries],
    }
    for counter, numbers in recount.items():
        if numbers != list(range(1, row[counter] + 1)):
            twice = len(numbers) > len(set(numbers)) or len(numbers) > row[counter]
            yield Fault(
                REPEATED if twice else LOST, record.id, f"{counter} is {row[counter]}, rows: {numbers}"
            )
    results = sum(message.role == "tool" for message in messages)
    for counter, counted in {"steps": len(replies), "total_tool_calls": results}.items():
        if row[counter] != counted:
            kind = REPEATED if counted > row[counter] else LOST
            yield Fault(kind, record.id, f"{counter} is {row[counter]}, a recount gives {counted}")
    answered = Counter(message.tool_call_id for message in messages if message.role == "tool")
    for call in calls:
        if answered[call] != 1 and row["state"] != State.CANCELLED:
            kind = REPEATED if answered[call] else LOST
            yield Fault(kind, record.id, f"the call {call} has {answered[call]} results")


def _runs(record: JobRecord) -> Iterator[Fault]:
    """Never two at once, and none is left."""
    for kinds in (("agent", "context"), ("summary",)):
        runs = [run for run in record.runs if run["kind"] in kinds]
        for run, following in pairwise(runs):
            if run["ended_at"] is None or run["ended_at"] > following["claimed_at"] + CLOCKS:
                yield Fault(REPEATED, record.id, f"the runs {run['id']} and {following['id']} were both live")
        if runs and runs[-1]["ended_at"] is None:
            yield Fault(STUCK, record.id, f"the run {runs[-1]['id']} was never ended")


def _steps(record: JobRecord) -> Iterator[Fault]:
    """Each movement was begun once, and its steps are there once each, in their order."""
    begun = Counter(
        (message.extra or {}).get("movement") for message in record.messages if message.role == "system"
    )
    for movement, times in begun.items():
        if times != 1:
            yield Fault(REPEATED, record.id, f"the movement {movement} was begun {times} times")
    done: dict[str, list[int]] = {}
    for message in record.messages:
        if message.role == "assistant":
            for movement, number in STEP.findall(message.content or "")[:1]:
                done.setdefault(movement, []).append(int(number))
    for movement, numbers in done.items():
        if len(numbers) != len(set(numbers)):
            yield Fault(REPEATED, record.id, f"the steps of {movement} are {numbers}")
        elif numbers != list(range(1, len(numbers) + 1)):
            yield Fault(LOST, record.id, f"the steps of {movement} are {numbers}")


def _requests(record: JobRecord, evidence: Evidence) -> Iterator[Fault]:
    """A step is asked for again only where the run that asked for it broke off before it had committed the reply."""
    asked = evidence.mind.asked(record.id)
    again = sum(asked.values()) - len(asked)
    agents = [run for run in record.runs if run["kind"] == "agent"]
    broken = sum(_broke_off(record, run) for run in agents)
    if again > broken:
        told = f"{again} requests were made again, {broken} of {len(agents)} runs broke off: {dict(asked)}"
        yield Fault(REPEATED, record.id, told)


def _broke_off(record: JobRecord, run: dict[str, Any]) -> bool:
    """Whether it may have ended in the middle of a step: it died, was stopped, or its model failed."""
    if run["outcome"] == Event.REQUEUE:
        ends = [event for event in record.events if event.run_id == run["id"] and event.kind == Event.REQUEUE]
        return not any((event.data or {}).get("reason") == Reason.SLICE_OVER for event in ends)
    return run["outcome"] not in (Event.SUCCEED, Event.ASK, Event.AWAIT_SUBTASKS, Event.COMPRESS)


def _effects(record: JobRecord, evidence: Evidence) -> Iterator[Fault]:
    """A good result has its effect; what may not be repeated has at most one; no committed call runs again."""
    effects = evidence.effects_of(record.id)
    results = record.results
    runs = len(record.runs)
    lines = Counter(record.bash_lines)
    for call in (call for message in record.messages for call in message.tool_calls or ()):
        result = results.get(call["id"])
        found = effects.get(call["id"], [])
        if result is not None and _is_unforeseen(result):
            yield Fault(LOST, record.id, f"the call {call['name']} was answered with: {result.content!r}")
        if call["name"] == "Bash":
            step = call["arguments"].partition("echo ")[2].partition(" ")[0]
            yield from _count(record.id, call, result, lines[step], most=1)
        elif call["name"] in NOTED:
            yield from _count(record.id, call, result, len(found), most=1 if call["name"] == "mark" else runs)
        if result is not None and (late := _late(found, result, evidence)):
            yield Fault(REPEATED, record.id, f"the call {call['id']} ran again after its result: {late}")


def _count(
    job_id: str, call: dict[str, str], result: Message | None, times: int, *, most: int
) -> Iterator[Fault]:
    told = f"the call {call['name']} {call['arguments']} ({call['id']}) took effect {times} times"
    if times > most:
        yield Fault(REPEATED, job_id, told)
    if not times and result is not None and not result.is_error:
        yield Fault(LOST, job_id, f"{told}, and its result is {result.content!r}")


def _late(effects: list[Effect], result: Message, evidence: Evidence) -> list[Effect]:
    """Those that came after the result was committed, unless from a process that had been frozen before its effect."""
    return [
        effect
        for effect in effects
        if effect.at > result.created_at + CLOCKS and effect.pid not in evidence.frozen
    ]


def _is_unforeseen(result: Message) -> bool:
    return result.is_error and result.content not in (INTERRUPTED, UNREAD, CANCELLING)


def _comments(record: JobRecord, note: Note, evidence: Evidence) -> Iterator[Fault]:
    """Each accepted comment is stored once, and the model reads it once: in a head, in a gap, or as an answer."""
    stored = Counter(token for comment in record.comments for token in COMMENT.findall(comment.text))
    for token in sorted(note.told - stored.keys()):
        yield Fault(LOST, record.id, f"the comment {token} was accepted and is not stored")
    for token, times in stored.items():
        if times > 1:
            yield Fault(REPEATED, record.id, f"the comment {token} is stored {times} times")
    if record.row["state"] != State.SUCCEEDED:
        return
    shown = evidence.mind.shown(record.id)
    for comment in record.comments:
        for token in COMMENT.findall(comment.text):
            if comment.created_at < record.row["completed_at"]:
                yield from _consumption(record, token, token in shown)
    for token in sorted(evidence.mind.shown_twice(record.id) & stored.keys()):
        yield Fault(REPEATED, record.id, f"the comment {token} was twice in one conversation")


def _consumption(record: JobRecord, token: str, shown: bool) -> Iterator[Fault]:
    rows = [message for message in record.messages if token in (message.content or "")]
    heads = [row.seq for row in rows if row.kind == "head"]
    taken = [row.seq for row in rows if row.kind == "gap" or row.tool_name == "transition"]
    if not rows or not shown:
        yield Fault(
            LOST, record.id, f"the model never saw the comment {token} (rows {[row.seq for row in rows]})"
        )
    if len(taken) > 1 or (heads and taken and heads[0] < taken[0]):
        yield Fault(REPEATED, record.id, f"the comment {token} was consumed in the rows {[*heads, *taken]}")


def _family(record: JobRecord, evidence: Evidence) -> Iterator[Fault]:
    """One child for each call that began one."""
    calls = [call for message in record.messages for call in message.tool_calls or ()]
    refused = {message.tool_call_id for message in record.messages if message.content == CANCELLING}
    spawned = sum(call["name"] == "spawn_subtask" and call["id"] not in refused for call in calls)
    children = sum(other.row["parent_id"] == record.id for other in evidence.records.values())
    if children != spawned and record.row["state"] != State.CANCELLED:
        kind = REPEATED if children > spawned else LOST
        yield Fault(kind, record.id, f"it began {spawned} subtasks and has {children}")


def _legacy(record: JobRecord, evidence: Evidence) -> Iterator[Fault]:
    """One final summary for each end; who inherits was told what there was."""
    finals = [summary for summary in record.summaries if summary.kind == "final"]
    ends = sum(event.to_state in TERMINAL for event in record.events)
    if len(finals) > ends:
        yield Fault(REPEATED, record.id, f"it has {len(finals)} final summaries and ended {ends} times")
    if record.row["summary_state"] == "done" and not any(FINAL in summary.content for summary in finals):
        yield Fault(LOST, record.id, "its final summary is not there")
    before = record.row["inherits_from"]
    if before is not None and record.row["visit"]:
        told = [message for message in record.messages if (message.extra or {}).get("block") == "inheritance"]
        if not told or before not in (told[0].content or ""):
            yield Fault(LOST, record.id, f"it was not told what {before} left")


def _hooks(record: JobRecord, evidence: Evidence) -> Iterator[Fault]:
    """The hook is told of each end at least once."""
    ends = sum(event.to_state in TERMINAL for event in record.events)
    told = evidence.told_ends.get(record.id, set())
    if len(told) < ends:
        yield Fault(LOST, record.id, f"it ended {ends} times, and its hook was told of {sorted(told)}")
