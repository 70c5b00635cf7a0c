"""What a transition does: the next movement, the job's end, a question, or a wait for subtasks."""

from __future__ import annotations

from typing import Any

from jobs.arguments import BadArguments
from jobs.errors import InboxChanged, NoOpenChildren
from jobs.pieces import ABORT, ASK, COMPLETE, WAIT_SUBTASKS
from jobs.pieces.model import ENDINGS
from jobs.questions import question_of, question_reason, shortened
from jobs.reasons import Reason
from jobs.states import Event
from storage import jobs as job_store
from storage.comments import answer_to
from storage.records import Checkpoint, Comment, Commit, NewEvent, NewMessage
from storage.subtasks import list_children
from worker import transition
from worker.endings import Ending, end, tool_message
from worker.job_run import JobRun
from worker.subtask_results import collect_results
from worker.tokens import estimate_tokens
from worker.transition import Transition

UNREAD = "Not accepted: there are unread comments. They follow; take them into account, then decide again."
NO_SUBTASKS = "Not done: this job has no subtasks to wait for."
LEAST_RESULT_TOKENS, MOST_RESULT_TOKENS = 1_000, 60_000  # of all subtasks' results together


def decide(job: JobRun, call_id: str, arguments: str) -> Ending | None:
    """Carries out the model's transition. None: the agent goes on (a new movement, or the call was refused)."""
    try:
        choice = transition.parse(job.movement, arguments)
    except BadArguments as error:
        return _refuse(job, call_id, f"Error: transition was not done: {error}")
    if choice.next_step == WAIT_SUBTASKS:
        return _wait_or_collect(job, call_id, choice)
    if choice.next_step == ABORT:
        return _abort(job, call_id, choice)
    if choice.next_step == ASK:
        return _ask_or_answer(job, call_id, choice)
    if choice.next_step == COMPLETE:
        return _complete(job, call_id, choice)
    return _move_on(job, call_id, choice)


def _complete(job: JobRun, call_id: str, choice: Transition) -> Ending | None:
    """Accepted only if no comment arrived that the model has not seen: the guard is part of the commit."""
    checkpoint = Checkpoint(
        Commit.END,
        messages=[_result(call_id, "Accepted. The job is complete.")],
        events=[_noted(job, choice)],
        expect_inbox=job.row["inbox_seen"],
        remark=("result", choice.summary),
        values={"result": choice.summary},
    )
    try:
        return end(job, Event.SUCCEED, Reason.COMPLETED, checkpoint=checkpoint)
    except InboxChanged:
        return _refuse(job, call_id, UNREAD)


def _abort(job: JobRun, call_id: str, choice: Transition) -> Ending:
    checkpoint = Checkpoint(
        Commit.END,
        messages=[_result(call_id, "The job is given up.")],
        events=[_noted(job, choice)],
        values={"error_message": choice.summary},
    )
    return end(
        job,
        Event.ABORT,
        Reason.ABORTED_BY_AGENT,
        {"detail": shortened(choice.summary)},
        checkpoint=checkpoint,
    )


def _ask_or_answer(job: JobRun, call_id: str, choice: Transition) -> Ending | None:
    """Parks the call until a person answers; on the way back, the answer becomes its result."""
    answer = answer_to(job.process.db, job.job_id, call_id)
    if answer is not None:
        _take_answer(job, call_id, answer)
        return None
    ask = job.movement.ask
    until = None if ask.deadline is None else job.process.db.clock() + ask.deadline
    question = question_of(choice.summary, choice.choices, until, ask.default_answer)
    checkpoint = Checkpoint(
        Commit.END,
        events=[_noted(job, choice)],
        parks=(call_id,),
        expect_inbox=job.row["inbox_seen"],
        remark=("question", choice.summary),
        values={"pending_call": call_id, "pending_question": question, "answer_due_at": until},
    )
    try:
        return end(job, Event.ASK, Reason.QUESTION, question_reason(question), checkpoint=checkpoint)
    except InboxChanged:
        return _refuse(job, call_id, UNREAD)


def _take_answer(job: JobRun, call_id: str, answer: Comment) -> None:
    """The answer is the parked call's result: the conversation goes on, or a fresh visit of the movement begins."""
    checkpoint = Checkpoint(
        Commit.RESULT, messages=[_result(call_id, f"{answer.author} answers: {answer.text}")]
    )
    if (
        job.movement.ask.resume == "rebuild"
    ):  # its head shows the last comments, question and answer among them
        checkpoint.what = Commit.TRANSITION
        checkpoint.values = next_visit(job.row["movement"])
    elif (
        answer.number == job.row["inbox_seen"] + 1
    ):  # shown as this result; older unread comments stay unread
        checkpoint.inbox_seen = answer.number
    job.commit(checkpoint)


def _wait_or_collect(job: JobRun, call_id: str, choice: Transition) -> Ending | None:
    """Parks the call until all children have ended; where none is left open, now or on the way back, tells of them.

    The guard is part of the commit: a child that ends just before it is not waited for, one that ends just after it
    finds its parent waiting.
    """
    children = list_children(job.process.db, job.job_id)
    if not children:
        return _refuse(job, call_id, NO_SUBTASKS)
    checkpoint = Checkpoint(
        Commit.END,
        events=[_noted(job, choice)],
        parks=(call_id,),
        expect_inbox=job.row["inbox_seen"],
        expect_children=True,
    )
    try:
        return end(job, Event.AWAIT_SUBTASKS, Reason.SUBTASKS, checkpoint=checkpoint)
    except InboxChanged:
        return _refuse(job, call_id, UNREAD)
    except NoOpenChildren:
        _collect(job, call_id)
        return None


def _collect(job: JobRun, call_id: str) -> None:
    """The children's ends become the call's result, their outputs are in the workspace before it is committed."""
    left = job.limits.usable - job.size.tokens
    budget = min(max(left // 2, LEAST_RESULT_TOKENS), MOST_RESULT_TOKENS)
    text = collect_results(job, list_children(job.process.db, job.job_id), budget)
    message = _result(call_id, text)
    job.commit(Checkpoint(Commit.RESULT, messages=[message]))


def force_on(job: JobRun, detail: str) -> Ending | None:
    """Ends a movement whose context is full: the movement `default_next` begins, else the job ends, never as a success."""
    step = job.movement.default_next or ABORT
    choice = Transition(step, f"forced: {detail}", _last_words(job), forced=True)
    if step in (COMPLETE, ABORT):
        data = {"detail": f"{detail}; compaction is off or did not help", "forced": step}
        checkpoint = Checkpoint(Commit.END, events=[_noted(job, choice)])
        if step == COMPLETE:
            return end(job, Event.FAIL, Reason.CONTEXT_EXHAUSTED, data, checkpoint=checkpoint)
        checkpoint.values["error_message"] = f"{Reason.CONTEXT_EXHAUSTED}: {data['detail']}"
        return end(job, Event.ABORT, Reason.CONTEXT_EXHAUSTED, data, checkpoint=checkpoint)
    return _move_on(job, None, choice)


def _last_words(job: JobRun) -> str:
    """What a movement that was forced on hands over: its last summary, or the last text of its agent."""
    told = [row.content for row in job.rows if row.content and row.role == "assistant"][-1:]
    told += [row.content for row in job.rows if row.content and row.kind == "summary"][-1:]
    return "\n".join(["This movement ran out of context before its end. Its last words:", *reversed(told)])


def _move_on(job: JobRun, call_id: str | None, choice: Transition) -> Ending | None:
    limit = job.piece.max_movements
    if job.row["visit"] >= limit:
        return _fail(job, call_id, Reason.TOO_MANY_MOVEMENTS, {"limit": limit}, f"its {limit} movements")
    limit = job.piece.movement(choice.next_step).max_consecutive_revisits
    if _visits_in_a_row(job, choice.next_step) >= limit:
        data = {"limit": limit, "movement": choice.next_step}
        return _fail(job, call_id, Reason.TOO_MANY_REVISITS, data, f"its {limit} visits of it in a row")
    job.commit(
        Checkpoint(
            Commit.TRANSITION,
            messages=_told(call_id, f"The movement {choice.next_step} begins."),
            events=[_noted(job, choice)],
            values=next_visit(choice.next_step),
        )
    )
    return None


def _fail(job: JobRun, call_id: str | None, reason: Reason, data: dict[str, Any], used_up: str) -> Ending:
    """Ends the job where the piece allows no further movement. After a retry the model reads why, and may end it."""
    told = f"Not done: the job has used up {used_up}. End it, or go another way."
    checkpoint = Checkpoint(Commit.END, messages=_told(call_id, told, is_error=True))
    return end(job, Event.FAIL, reason, data, checkpoint=checkpoint)


def _visits_in_a_row(job: JobRun, movement: str) -> int:
    """How many of the last visits were of this movement, without another between them. A question begins no new one."""
    chosen = job_store.list_events_of_kind(job.process.db, job.job_id, "transition")
    steps = [(event.data or {}).get("to") for event in reversed(chosen)]
    names = [step for step in steps if step not in ENDINGS] + [job.piece.initial_movement]
    return next((index for index, name in enumerate(names) if name != movement), len(names))


def next_visit(movement: str) -> dict[str, Any]:
    """The columns that end a visit: the next one has not begun, and starts with an empty view."""
    columns = (
        "visit_seq",
        "tail_seq",
        "summary_seq",
        "trim_seq",
        "context_tokens",
        "context_estimate",
        "measured_tokens",
    )
    return {"movement": movement} | dict.fromkeys(columns, 0)


def _refuse(job: JobRun, call_id: str, text: str) -> Ending | None:
    """The model reads why, and goes on."""
    job.commit(Checkpoint(Commit.RESULT, messages=[_result(call_id, text, is_error=True)]))
    return None


def _told(call_id: str | None, text: str, *, is_error: bool = False) -> list[NewMessage]:
    """The result of the transition's call; none where the movement was forced on."""
    return [] if call_id is None else [_result(call_id, text, is_error=is_error)]


def _result(call_id: str, text: str, *, is_error: bool = False) -> NewMessage:
    return tool_message(call_id, transition.NAME, text, is_error=is_error, tokens=estimate_tokens(text))


def _noted(job: JobRun, choice: Transition) -> NewEvent:
    data: dict[str, Any] = {
        "from": job.row["movement"],
        "to": choice.next_step,
        "summary": shortened(choice.summary),
        # What is handed on where no lesson is given is the summary.
        "lessons": (choice.lessons or choice.summary)[: transition.LESSONS_CHARS],
    }
    if choice.forced:
        data["forced"] = True
    if job.movement.verify:
        data["findings"] = choice.summary[: transition.FINDINGS_CHARS]
    return NewEvent("transition", "agent", data=data)
