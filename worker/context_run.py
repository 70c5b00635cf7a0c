"""A compaction: a run of the context queue that puts a summary in the place of a job's older messages.

    claim (compressing) → plan → summarise, in no transaction → swap, in one → queued: the same movement goes on

Until the swap is committed nothing is changed, so that a death or a failure on the way costs model calls only. What the
model writes is discarded where it would not make real room; the agent then goes on with what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jobs.errors import ConfigurationError
from jobs.reasons import Reason
from jobs.states import Event, State
from jobs.wakeups import CONTEXT_QUEUE
from storage.records import Checkpoint, Commit, Message, NewEvent, NewMessage, NewSummary
from worker.accounting import Marks, marks_column, size_columns
from worker.cutting import replies_left_out
from worker.endings import Ending, end, passing_wait
from worker.job_run import JobRun
from worker.language import is_japanese
from worker.layout import summary_heading
from worker.model.errors import ModelError
from worker.process import WorkerProcess
from worker.room import Plan, make_plan
from worker.slices import RunKind, run_slice
from worker.summarising import Purpose, Spend, Summary, SummaryOrder, summarise, usual_cap
from worker.tokens import estimate_tokens

MOST_FAILURES = 4  # of the summariser in a row; the agent may still go on without a compaction


def run_context(process: WorkerProcess, hint: str | None) -> str | None:
    """Answers one wake-up of the context queue, as `run_slice` does."""
    return run_slice(process, hint, COMPACTION)


def compact(job: JobRun) -> Ending:
    """Summarises what the plan takes out, and swaps. Raises LeaseLost, Cancelled or StorageError."""
    plan = make_plan(job)
    if plan is None:
        return _keep(job, "nothing of it can be left out", Spend(), counts=False)
    spend = Spend()
    try:
        summary = summarise(job.process, job.live.cancel, plan.cut.taken, _order(job, plan), spend)
    except ModelError as error:
        return _after_failure(job, error, spend)
    except ConfigurationError as error:
        return _keep(job, str(error), spend)
    return _swap(job, plan, summary, spend)


COMPACTION = RunKind(CONTEXT_QUEUE, State.COMPRESSING, State.COMPRESSING, Reason.COMPACTING, compact)


def _order(job: JobRun, plan: Plan) -> SummaryOrder:
    earlier = [row.content for row in job.rows if row.kind == "summary"]
    return SummaryOrder(
        purpose=Purpose.COMPACTION,
        task=job.instruction,
        models=job.candidates,
        label=f"{job.job_id}/compaction/{job.row['epoch']}-{job.ref.run_id[:8]}",
        previous=earlier[-1] if earlier else None,
        run=job.ref,
        pay=job.charge,
        failures=job.row["model_failures"],
        most_tokens=min(plan.summary_tokens, usual_cap(job.window)),
    )


def _swap(job: JobRun, plan: Plan, summary: Summary, spend: Spend) -> Ending:
    """One transaction: the summary's row, the pointers, the size, the state. Discarded where it makes no real room."""
    taken, size = plan.cut.taken, job.size
    message = _message(job, summary, taken)
    smaller = size.replaced(job.marks.fixed + message.tokens + plan.cut.kept)
    if not summary.text or smaller.tokens > plan.most_after:
        return _keep(job, "its summary would not have made it smaller", spend)
    checkpoint = Checkpoint(Commit.SWAP, messages=[message])
    checkpoint.summary = NewSummary(
        kind="compaction",
        content=summary.text,
        model=summary.model,
        first_seq=taken[0].seq,
        last_seq=taken[-1].seq,
        message_count=len(taken),
        tokens=summary.tokens,
        tokens_before=size.tokens,
        tokens_after=smaller.tokens,
        prompt_tokens=spend.prompt_tokens,
        completion_tokens=spend.completion_tokens,
        cost=spend.cost,
    )
    checkpoint.values |= {"tail_seq": plan.cut.tail_seq, "epoch": job.row["epoch"] + 1, "model_failures": 0}
    checkpoint.values |= size_columns(smaller)
    checkpoint.values |= marks_column(job.marks.rearmed(todos_due=bool(job.todos.open_items)))
    data = {
        "messages": len(taken),
        "tokens_before": size.tokens,
        "tokens_after": smaller.tokens,
        "calls": spend.calls,
        "model": summary.model,
    }
    return end(job, Event.COMPRESSED, Reason.COMPACTED, data, checkpoint=checkpoint)


def _message(job: JobRun, summary: Summary, taken: Sequence[Message]) -> NewMessage:
    japanese = is_japanese(job.instruction)
    last_seq, replies = taken[-1].seq, replies_left_out(job.rows, taken)
    extra = {"last_seq": last_seq, "replies": replies, "language": "ja" if japanese else "en"}
    tokens = summary.tokens + estimate_tokens(summary_heading(last_seq, replies, japanese=japanese))
    return NewMessage("user", "summary", summary.text, extra=extra, tokens=tokens)


def _after_failure(job: JobRun, error: ModelError, spend: Spend) -> Ending:
    """A passing failure is tried again later, in the same state; after a few of them, and after any other one, the
    agent goes on without a compaction: its own calls will tell what is wrong."""
    failures = job.row["model_failures"] + 1
    passing = passing_wait(job, error, failures)
    if passing is None or failures >= MOST_FAILURES:
        return _keep(job, str(error), spend)
    reason, delay, data = passing
    checkpoint = Checkpoint(Commit.END, values={"model_failures": failures})
    return end(job, Event.REQUEUE, reason, data, checkpoint=checkpoint, delay=delay)


def _keep(job: JobRun, detail: str, spend: Spend, *, counts: bool = True) -> Ending:
    """Nothing is replaced. The breaker counts it, so that the same is not tried at once again."""
    marks: Marks = job.marks
    if counts:
        marks = replace(marks, useless=marks.useless + 1, useless_at=job.size.tokens)
    told = NewEvent("compaction_discarded", "worker", data={"detail": detail, "calls": spend.calls})
    values = marks_column(marks) | {"model_failures": 0}
    checkpoint = Checkpoint(Commit.END, events=[told], values=values)
    return end(job, Event.COMPRESSED, Reason.CONTEXT_KEPT, {"detail": detail}, checkpoint=checkpoint)
