"""The life of a job: its states, the events that move it, and the one table that says which move is legal.

Pure: no database, no clock. `storage` executes a move as one guarded UPDATE whose sources come from here.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a job is doing. Every state but `running` carries one reason (see `jobs.reasons`)."""

    INHERITING = (
        "inheriting"  # a predecessor's summary is pending; after 120 s its last messages serve instead
    )
    QUEUED = "queued"  # due now, or at a future `available_at` (schedules, backoff, rate limits)
    RUNNING = "running"  # one run holds the lease
    COMPRESSING = "compressing"  # its context is being summarised by the context queue
    PAUSED = "paused"  # by a person, or because a budget ran out; `resume_state` remembers what it waited for
    WAITING_HUMAN = "waiting_human"  # the agent asked; no worker is held
    WAITING_SUBTASKS = "waiting_subtasks"  # all children must be terminal; no worker is held
    SUCCEEDED = "succeeded"  # terminal: the agent's COMPLETE was accepted
    FAILED = "failed"  # terminal: it could not go on; `retry` continues from the last checkpoint
    ABORTED = "aborted"  # terminal: the agent's own ABORT
    CANCELLED = "cancelled"  # terminal: a person's decision


class Event(StrEnum):
    """What happens to a job. Submitting is not an event: it makes the job."""

    INHERITED = "inherited"
    CLAIM = "claim"
    REQUEUE = "requeue"
    LEASE_EXPIRED = "lease_expired"
    COMPRESS = "compress"
    COMPRESSED = "compressed"
    ASK = "ask"
    REPLY = "reply"
    AWAIT_SUBTASKS = "await_subtasks"
    SUBTASKS_DONE = "subtasks_done"
    PAUSE = "pause"
    EXHAUST_BUDGET = "exhaust_budget"
    RESUME = "resume"
    RESUME_INHERITING = "resume_inheriting"
    RESUME_COMPRESSING = "resume_compressing"
    RESUME_WAITING_HUMAN = "resume_waiting_human"
    RESUME_WAITING_SUBTASKS = "resume_waiting_subtasks"
    SUCCEED = "succeed"
    FAIL = "fail"
    ABORT = "abort"
    CANCEL = "cancel"
    RETRY = "retry"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.ABORTED, State.CANCELLED})
LEASED = frozenset({State.RUNNING, State.COMPRESSING})  # the only states in which a run may own the job

TRANSITIONS: dict[tuple[State, Event], State] = {
    # A predecessor's summary is there, or its time is up.
    (State.INHERITING, Event.INHERITED): State.QUEUED,
    (State.INHERITING, Event.PAUSE): State.PAUSED,
    (State.INHERITING, Event.CANCEL): State.CANCELLED,
    # A worker takes it: the run's id becomes the fence.
    (State.QUEUED, Event.CLAIM): State.RUNNING,
    (State.QUEUED, Event.PAUSE): State.PAUSED,
    (State.QUEUED, Event.CANCEL): State.CANCELLED,
    # The run gives it back in order: slice over, backoff, rate limit, shutdown.
    (State.RUNNING, Event.REQUEUE): State.QUEUED,
    # The run's worker died or lost its lease: the sweep gives it back, and counts an attempt.
    (State.RUNNING, Event.LEASE_EXPIRED): State.QUEUED,
    # The context is full: the run hands over to the context queue.
    (State.RUNNING, Event.COMPRESS): State.COMPRESSING,
    (State.RUNNING, Event.ASK): State.WAITING_HUMAN,
    (State.RUNNING, Event.AWAIT_SUBTASKS): State.WAITING_SUBTASKS,
    # At the next step boundary after pause_requested, by the run itself.
    (State.RUNNING, Event.PAUSE): State.PAUSED,
    (State.RUNNING, Event.EXHAUST_BUDGET): State.PAUSED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.ABORT): State.ABORTED,
    # By the run itself after cancel_requested, or by the sweep where the run is dead.
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    # A worker of the context queue takes it; it gives it back in order after a failed call or at a shutdown.
    (State.COMPRESSING, Event.CLAIM): State.COMPRESSING,
    (State.COMPRESSING, Event.REQUEUE): State.COMPRESSING,
    # The summary is swapped in, or was not worth it: the same movement goes on.
    (State.COMPRESSING, Event.COMPRESSED): State.QUEUED,
    # The compaction's worker died: another one takes it; the state stays.
    (State.COMPRESSING, Event.LEASE_EXPIRED): State.COMPRESSING,
    (State.COMPRESSING, Event.FAIL): State.FAILED,
    (State.COMPRESSING, Event.PAUSE): State.PAUSED,
    (State.COMPRESSING, Event.CANCEL): State.CANCELLED,
    # The answer becomes the result of the parked call.
    (State.WAITING_HUMAN, Event.REPLY): State.QUEUED,
    (State.WAITING_HUMAN, Event.PAUSE): State.PAUSED,
    (State.WAITING_HUMAN, Event.CANCEL): State.CANCELLED,
    # The last child ended: its transaction wakes the parent.
    (State.WAITING_SUBTASKS, Event.SUBTASKS_DONE): State.QUEUED,
    (State.WAITING_SUBTASKS, Event.PAUSE): State.PAUSED,
    (State.WAITING_SUBTASKS, Event.CANCEL): State.CANCELLED,
    # Replies and children's ends during a pause are kept: only resume_state changes.
    (State.PAUSED, Event.REPLY): State.PAUSED,
    (State.PAUSED, Event.SUBTASKS_DONE): State.PAUSED,
    (State.PAUSED, Event.RESUME): State.QUEUED,
    (State.PAUSED, Event.RESUME_INHERITING): State.INHERITING,
    (State.PAUSED, Event.RESUME_COMPRESSING): State.COMPRESSING,
    (State.PAUSED, Event.RESUME_WAITING_HUMAN): State.WAITING_HUMAN,
    (State.PAUSED, Event.RESUME_WAITING_SUBTASKS): State.WAITING_SUBTASKS,
    (State.PAUSED, Event.CANCEL): State.CANCELLED,
    # Terminal jobs leave only by an explicit retry, which continues from the last checkpoint.
    # A succeeded job is followed up by a new job that inherits from it.
    (State.FAILED, Event.RETRY): State.QUEUED,
    (State.ABORTED, Event.RETRY): State.QUEUED,
    (State.CANCELLED, Event.RETRY): State.QUEUED,
}

RESUME_EVENTS: dict[State, Event] = {
    State.QUEUED: Event.RESUME,
    State.INHERITING: Event.RESUME_INHERITING,
    State.COMPRESSING: Event.RESUME_COMPRESSING,
    State.WAITING_HUMAN: Event.RESUME_WAITING_HUMAN,
    State.WAITING_SUBTASKS: Event.RESUME_WAITING_SUBTASKS,
}


def target(state: State, event: Event) -> State | None:
    """The state that `event` leads to from `state`, or None where the event is not legal there."""
    return TRANSITIONS.get((state, event))


def sources(event: Event) -> tuple[State, ...]:
    """Every state in which `event` is legal."""
    return tuple(state for state, known in TRANSITIONS if known is event)


def mermaid() -> str:
    """The state diagram of the docs, generated from the table."""
    lines = ["stateDiagram-v2", "    [*] --> queued: submit", "    [*] --> inheriting: submit, inheriting"]
    lines += [f"    {source} --> {end}: {event}" for (source, event), end in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)
