"""What is done about a context that fills up, before the model is asked and after it refused a request as too long.

    70%  an event           80%  old results are shortened, or the context is handed over to be summarised
    85%  the agent is asked to wrap up          95%  it is forced on          99%  no call is made

The last three are reached only where compaction is off or did not help. What was done is kept on the job's row (see
`worker.accounting.Marks`): a resumed run does nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jobs.reasons import Reason
from jobs.states import Event
from storage.records import Checkpoint, Commit, NewEvent, NewMessage
from worker.accounting import Marks, marks_column, size_columns
from worker.cutting import Cut, choose_cut, freed_by_trimming
from worker.decisions import force_on
from worker.endings import Ending, end
from worker.job_run import JobRun
from worker.model.errors import ModelError
from worker.model.types import Usage
from worker.reminders import listed, reminder
from worker.thresholds import worth_trying

FREED = 0.85  # a compaction leaves at most this part of what was there
BELOW = 0.9  # and at most this part of the size at which the next one would be due
TRIM_ENOUGH = 0.6  # shortened results alone are enough if they bring the context down to this part of it
LEAST_SUMMARY = 150  # tokens
HEADING = 150  # tokens, at most, of what a summary is introduced with
KEPT_TODOS, WRAP_UP = "todos_kept", "wrap_up"

TODOS_TEXT = (
    "Your todo list, exactly as it stands; the conversation that it was written in is now a summary:\n{todos}"
)
WRAP_UP_TEXT = (
    "{percent}% of the context that you may use are used up, and this conversation cannot be made shorter. Bring the most "
    "important thing to an end now and call `transition`, with what is done and what is left. Soon no step is possible."
)
LARGE_FIXED = 0.5  # of the size at which compaction begins: with more of it fixed, little is left to compact
REMEDY = "allow fewer tools in the movement, shorten its prompts, or use a model with a larger window"
TOO_LARGE = (
    "the system prompt, the tools and the instruction alone take {fixed:,} of {usable:,} tokens, and compaction begins at "
    "{compact:,}: " + REMEDY
)
MOSTLY_FIXED = (
    " (the system prompt, the tools and the instruction alone take {fixed:,}, which no compaction frees: "
    + REMEDY
    + ")"
)


@dataclass(frozen=True, slots=True)
class Left:
    """The step is over before the model was asked: the job ended or waits (`ending`), or another movement begins."""

    ending: Ending | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A compaction that can help: what goes, what the context may be afterwards, how long the summary may be."""

    cut: Cut
    most_after: int
    summary_tokens: int


def make_room(job: JobRun) -> Left | None:
    """Does what is due at the context's present size. None: there is room, the model may be asked."""
    if job.size.tokens < job.limits.compact:
        return None
    if job.process.settings.context.compression.enabled:
        marks = job.marks
        if worth_trying(job.size.tokens, marks.useless, marks.useless_at):
            if _trim(job):
                return None
            if make_plan(job) is not None:
                return Left(_hand_over(job))
        if detail := _fixed_alone(job):
            return Left(end(job, Event.FAIL, Reason.CONTEXT_EXHAUSTED, {"detail": detail}))
    limits = job.limits
    if job.size.tokens >= limits.force:
        detail = f"about {job.size.tokens:,} of {limits.usable:,} usable tokens are taken"
        fixed = _fixed_tokens(job)
        if job.window_is_known and fixed >= limits.compact * LARGE_FIXED:
            detail += MOSTLY_FIXED.format(fixed=fixed)
        return Left(force_on(job, detail))
    return None


def after_overflow(job: JobRun, error: ModelError) -> Ending | None:
    """The endpoint refused the request as too long: room is made once; refused again, the job fails. None: ask again."""
    marks = job.marks
    size = job.size.counted(Usage(error.numbers.prompt, None))  # many say how large it was
    detail = str(error)
    if marks.overflowed:
        detail = f"{detail} (also after its context was made smaller)"
        return end(job, Event.FAIL, Reason.CONTEXT_EXHAUSTED, {"detail": detail})
    ceiling = size.tokens if size.tokens <= job.limits.usable else marks.ceiling
    # Not committed here but with what makes room: a run that dies before asks again, and is told again.
    job.row |= size_columns(size)
    job.row |= marks_column(replace(marks, model=job.model_name, overflowed=True, ceiling=ceiling))
    if not job.process.settings.context.compression.enabled:
        return force_on(job, detail)
    if _trim(job):
        return None
    if make_plan(job) is not None:
        return _hand_over(job)
    detail = f"{detail}; {_fixed_alone(job) or 'nothing of the conversation can be left out'}"
    return end(job, Event.FAIL, Reason.CONTEXT_EXHAUSTED, {"detail": detail})


def make_plan(job: JobRun) -> Plan | None:
    """The compaction of the present view; None where none can help. The same for the run that hands over and the one
    that compacts."""
    size, limits, settings = job.size, job.limits, job.process.settings.context.compression
    fixed = _fixed_tokens(job)
    most_after = min(int(limits.compact * BELOW), int(size.tokens * FREED))
    for most_kept in (int(limits.compact / 2 / size.ratio), 0):
        cut = choose_cut(
            job.rows,
            keep_recent=settings.keep_recent,
            min_to_compress=settings.min_to_compress,
            most_kept=most_kept,
            trim_seq=job.row["trim_seq"],
        )
        if cut is not None:
            left = int((most_after - fixed) / size.ratio) - cut.kept - HEADING
            if left >= LEAST_SUMMARY:
                return Plan(cut, most_after, left)
    return None


def _trim(job: JobRun) -> bool:
    """Shows old long results shortened, if that alone makes enough room: no model need be asked."""
    size, limits = job.size, job.limits
    settings = job.process.settings.context.compression
    cut = choose_cut(
        job.rows, keep_recent=settings.keep_recent, min_to_compress=1, most_kept=int(limits.compact / 2)
    )
    if cut is None:
        return False
    freed = freed_by_trimming(job.rows, cut.tail_seq, job.row["trim_seq"])
    smaller = size.replaced(size.estimate - freed)
    if not freed or smaller.tokens > limits.compact * TRIM_ENOUGH:
        return False
    data = {"tokens_before": size.tokens, "tokens_after": smaller.tokens, "before_seq": cut.tail_seq}
    values: dict[str, Any] = {"trim_seq": cut.tail_seq, "epoch": job.row["epoch"] + 1}
    values |= size_columns(smaller) | marks_column(job.marks.rearmed())
    events = [*warning(job, size.tokens, job.marks), NewEvent("context_trimmed", "worker", data=data)]
    job.commit(Checkpoint(Commit.TRIM, events=events, values=values))
    return True


def _hand_over(job: JobRun) -> Ending:
    """Frees the agent's slot: a worker of the context queue summarises, then the same movement goes on."""
    tokens, limits = job.size.tokens, job.limits
    checkpoint = Checkpoint(
        Commit.END,
        events=warning(job, tokens, job.marks),
        values=size_columns(job.size) | marks_column(job.marks),
    )
    data = {"tokens": tokens, "threshold": limits.compact, "window": limits.window}
    return end(job, Event.COMPRESS, Reason.CONTEXT_FULL, data, checkpoint=checkpoint)


def _fixed_alone(job: JobRun) -> str | None:
    """What to change where not even an empty conversation would fit. Of a guessed window nobody knows that."""
    limits, fixed = job.limits, _fixed_tokens(job)
    if not job.window_is_known or fixed < limits.compact:
        return None
    return TOO_LARGE.format(fixed=fixed, usable=limits.usable, compact=limits.compact)


def _fixed_tokens(job: JobRun) -> int:
    """What no compaction can free: system message, head, schemas."""
    return round(job.marks.fixed * job.size.ratio)


def warning(job: JobRun, tokens: int, marks: Marks) -> list[NewEvent]:
    """The event of a context that is 70% full, once until it is smaller again."""
    limits = job.limits
    if marks.warned or tokens < limits.warn:
        return []
    data = {"tokens": tokens, "usable": limits.usable, "compaction_at": limits.compact}
    return [NewEvent("context_warning", "worker", data=data)]


def gap_rows(job: JobRun) -> tuple[list[NewMessage], dict[str, Any]]:
    """What the agent is told of its context before the next call, and the marks that it was told."""
    marks = job.marks
    rows: list[NewMessage] = []
    if marks.todos_due and job.todos.open_items:
        rows.append(reminder(KEPT_TODOS, TODOS_TEXT.format(todos=listed(job.todos.open_items))))
    tokens, limits = job.size.tokens, job.limits
    asks = tokens >= limits.ask_to_end and not marks.asked_to_wrap_up
    if asks:
        percent = min(tokens * 100 // limits.usable, 99)
        rows.append(reminder(WRAP_UP, WRAP_UP_TEXT.format(percent=percent)))
    told = replace(marks, todos_due=False, asked_to_wrap_up=marks.asked_to_wrap_up or asks)
    return rows, {} if told == marks else marks_column(told)
