"""Comments to a job's agent, and answers to its questions. Both go into the durable inbox."""

from __future__ import annotations

from typing import Any

from jobs.audit import note
from jobs.errors import IllegalTransition, UsageError
from jobs.installation import Installation
from jobs.questions import chosen_answer
from jobs.reasons import Reason
from jobs.states import Event, State, target
from jobs.wakeups import AGENT_QUEUE
from storage.comments import SYSTEM
from storage.engine import wall_clock
from storage.jobs import LockedJob, job_tx
from storage.records import Comment, NewEvent

MAX_COMMENT_CHARS = 100_000


def add_comment(
    installation: Installation, job_id: str, owner: str | None, text: str, author: str
) -> Comment:
    """Adds a comment. The agent reads it once: at its next step, and always before it may complete.

    While the job waits for an answer, the comment is the answer. A comment to a finished job is kept and read after
    a retry. Raises JobNotFound, UsageError for an empty or too long text.
    """
    return _deliver(installation, job_id, owner, text, author, must_answer=False)


def reply(installation: Installation, job_id: str, owner: str | None, text: str, author: str) -> Comment:
    """Answers the job's question; the number or the text of one of its choices is stored as that choice.

    Raises IllegalTransition when it asks none; else as `add_comment`.
    """
    return _deliver(installation, job_id, owner, text, author, must_answer=True)


def answer_by_default(installation: Installation, job_id: str) -> bool:
    """Answers a question whose deadline has passed with its default; True: the job is due, its wake-up to be sent.

    False, and nothing is written, where a person was quicker or the deadline has not passed: a question gets one
    answer, however many sweeps and people give one at the same instant. Raises JobNotFound.
    """
    with job_tx(installation.db, job_id) as job:
        due = job.row["answer_due_at"]
        overdue = due is not None and due <= job.row["updated_at"]  # the clock of the lock just taken
        if job.row["state"] != State.WAITING_HUMAN or not overdue:
            return False
        answer = job.row["pending_question"]["default_answer"]
        _, woken = _store(job, answer, SYSTEM, must_answer=True)
    return woken


def _deliver(
    installation: Installation, job_id: str, owner: str | None, text: str, author: str, *, must_answer: bool
) -> Comment:
    if not text.strip():
        raise UsageError("the comment is empty", hint="give it some text")
    if len(text) > MAX_COMMENT_CHARS:
        raise UsageError(
            f"the comment has {len(text):,} characters, at most {MAX_COMMENT_CHARS:,} are possible",
            hint="put long material into a file: sostenuto files put",
        )
    with job_tx(installation.db, job_id, owner) as job:
        note(job, "reply" if must_answer else "comment", author)
        comment, woken = _store(job, text, author, must_answer=must_answer)
    if woken:
        installation.wakeups.send_and_wait(AGENT_QUEUE, job_id)
    return comment


def _store(job: LockedJob, text: str, author: str, *, must_answer: bool) -> tuple[Comment, bool]:
    state = State(job.row["state"])
    asked = job.row["pending_call"] if state in (State.WAITING_HUMAN, State.PAUSED) else None
    if asked is None and must_answer:
        raise IllegalTransition(
            job.row["id"], state, "a reply", hint="send a comment instead: sostenuto comment"
        )
    if asked is not None:
        text = chosen_answer(job.row["pending_question"], text)
    comment = job.add_comment(author, text, answers_call=asked)
    values: dict[str, Any] = {"inbox_total": comment.number}
    noted = NewEvent("comment", author, data={"number": comment.number})
    if asked is None:
        job.update(values, noted)
        return comment, False
    end = target(state, Event.REPLY)
    answered = NewEvent(Event.REPLY, author, state, end, {"number": comment.number})
    # The call stays parked until the next run makes the comment its result; nobody can answer it twice.
    values |= {"pending_call": None, "pending_question": None, "answer_due_at": None}
    if state is State.PAUSED:
        job.update(values | {"resume_state": State.QUEUED}, noted, answered)
        return comment, False
    now = wall_clock()
    values |= {
        "state": end,
        "reason": Reason.ANSWERED,
        "reason_data": None,
        "available_at": now,
        "woken_at": now,
    }
    job.update(values, noted, answered)
    return comment, True
