"""A job's final summary: a task of its own on the context queue, after the job has ended.

The job's result does not wait for it, and its failure only warns. It has a run, a lease and a fence of its own, and a
bounded number of attempts; jobs that wait to inherit from this one are woken when it is there, or will not come.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.errors import ConfigurationError
from jobs.inheritance import LONGEST_WAIT, go_on_if_ready, let_followers_go_on
from jobs.json_logs import logging_about
from jobs.measures import SUMMARIES
from jobs.pieces import thaw
from jobs.reasons import explain
from jobs.wakeups import CONTEXT_QUEUE, SUMMARY
from storage import jobs as job_store
from storage import transcript
from storage.crashpoints import CrashPoint, crash_point
from storage.errors import LeaseLost, StorageError
from storage.final_summaries import (
    DONE,
    FAILED,
    PENDING,
    RUN_KIND,
    SummaryEnd,
    claim_summary,
    end_summary_if_run_owns,
    take_unwoken_summaries,
    values_after_death,
)
from storage.inheritance import followers_to_go_on
from storage.jobs import LockedJob
from storage.records import Message, NewEvent, NewSummary, Paid, RunRef
from storage.runs import count_live_runs
from storage.spending import charge_if_run_owns
from worker.cancel import Cancelled
from worker.fallback import candidates_of
from worker.layout import INHERITED
from worker.live import LiveRun
from worker.model.errors import ModelError, ModelErrorKind
from worker.monitoring import SUMMARISING, sight
from worker.process import WorkerProcess
from worker.summarising import Purpose, Spend, SummaryOrder, summarise

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 5  # failed calls and dead workers together
FIRST_BACKOFF = 2.0  # seconds, doubled with each failed attempt
LONGEST_BACKOFF = 60.0
PAGE = 200  # transcript rows in memory at a time
PROBLEM_CHARS = 500
_MAY_PASS = (ModelErrorKind.TRANSIENT, ModelErrorKind.INTERRUPTED, ModelErrorKind.RATE_LIMIT)


def run_summary(process: WorkerProcess, hint: str | None) -> str | None:
    """Answers one wake-up: writes the summary that is due, and returns its job's id; None when none was.

    Never raises: what goes wrong is noted on the job.
    """
    run_id = uuid.uuid4().hex
    try:
        claimed = _claim(process, run_id, hint)
    except StorageError as error:
        log.warning("cannot claim a summary: %s", error)  # the sweep sends the wake-up again
        process.give_back_later(run_id)  # the claim may have been committed all the same
        return None
    if claimed is None:
        return None
    live, row = claimed
    process.show(sight(SUMMARISING, row))
    try:
        with logging_about(job=str(row["id"]), run=run_id):
            end = _work(process, live, row)
            if end is not None:
                _commit(process, live.ref, end)
    except LeaseLost as error:  # the job was retried, or the lease was lost
        log.warning("%s", error)
    except StorageError as error:
        log.warning("summary of job %s: %s", row["id"], error)
        process.give_back_later(run_id)
    finally:
        process.live.remove(live)
    return str(row["id"])


def _claim(process: WorkerProcess, run_id: str, hint: str | None) -> tuple[LiveRun, dict[str, Any]] | None:
    with process.claiming:
        if process.leaving:
            if hint is not None:
                process.wakeups.send(SUMMARY, hint)  # another worker's to hear: this message is gone
            return None
        began = time.monotonic()
        row = claim_summary(process.db, run_id, process.name, process.settings.lease_seconds, hint)
        if row is None:
            return None
        live = LiveRun(RunRef(run_id, row["id"]), suspect=False, renewed_at=began)
        process.live.add(live)
        return live, row


def _commit(process: WorkerProcess, ref: RunRef, end: SummaryEnd) -> None:
    end_summary_if_run_owns(process.db, ref, end)
    log.info("summary of job %s: %s", ref.job_id, end.state)
    process.measures.count(SUMMARIES, "again" if end.state == PENDING else end.state)
    if end.state == PENDING:
        if not end.delay:
            process.wakeups.send(SUMMARY, ref.job_id)
    else:
        let_followers_go_on(process.installation, ref.job_id)


def _work(process: WorkerProcess, live: LiveRun, row: Mapping[str, Any]) -> SummaryEnd | None:
    """Writes the summary; whatever stops it becomes an end. None: the run may write nothing more."""
    try:
        return _summarised(process, live, row)
    except Cancelled as stopped:
        if (
            stopped.reason != "shutdown"
        ):  # lease_lost: by an outage, if it is still ours when the database is back
            process.give_back_later(live.ref.run_id)
            return None
        return SummaryEnd(PENDING, counts=False)
    except ModelError as error:
        return _after_model_error(row, error)
    except ConfigurationError as error:
        return _failed(row, f"{error} ({error.hint})" if error.hint else str(error))
    except (LeaseLost, StorageError):
        raise
    except Exception as error:
        log.exception("the summary of job %s failed inside Sostenuto", row["id"])
        return _again_or_failed(row, f"{type(error).__name__}: {error}", None)


def _pay(process: WorkerProcess, ref: RunRef, paid: Paid) -> None:
    charge_if_run_owns(process.db, ref, paid)
    process.count_spent(paid.prompt_tokens, paid.completion_tokens, paid.cost)


def _summarised(process: WorkerProcess, live: LiveRun, row: Mapping[str, Any]) -> SummaryEnd:
    instruction, frozen = job_store.get_inputs(process.db, row["id"])
    models = candidates_of(process.settings, row["model"], thaw(frozen), row["movement"])
    if not models:
        raise ConfigurationError("no model is set", hint="set SOSTENUTO_MODEL")
    order = SummaryOrder(
        Purpose.FINAL,
        task=instruction,
        models=models,
        label=f"{row['id']}/final/{live.ref.run_id[:8]}",
        run=live.ref,
        pay=lambda paid: _pay(process, live.ref, paid),
        failures=row["summary_attempts"],
    )
    spend = Spend()
    summary = summarise(process, live.cancel, _rows(process, row), order, spend)
    last = row["total_messages"]
    made = NewSummary(
        kind="final",
        content=summary.text,
        model=summary.model,
        first_seq=min(1, last),
        last_seq=last,
        message_count=last,
        tokens=summary.tokens,
        prompt_tokens=spend.prompt_tokens,
        completion_tokens=spend.completion_tokens,
        cost=spend.cost,
    )
    data = {"tokens": summary.tokens, "model": summary.model, "calls": spend.calls, "cost": spend.cost}
    return SummaryEnd(DONE, NewEvent("summary_done", "worker", data=data), made)


def _rows(process: WorkerProcess, row: Mapping[str, Any]) -> Iterator[Message]:
    """The whole transcript, page by page, what was inherited only once, and how it ended as the last word."""
    after, inherited = 0, False
    while page := transcript.list_messages(process.db, row["id"], after, PAGE):
        for message in page:
            if (message.extra or {}).get("block") == INHERITED:
                if inherited:
                    continue
                inherited = True
            yield message
        after = page[-1].seq
    yield Message(after + 1, row["visit"], "user", "gap", ending_in_words(row), "", row["completed_at"])


def ending_in_words(row: Mapping[str, Any]) -> str:
    """How the job ended, for a reader of its conversation."""
    why, _ = explain(row["state"], row["reason"], {"id": row["id"], **(row["reason_data"] or {})})
    told = [f"The job has ended: {row['state']}" + (f" ({why})." if why else ".")]
    told += [f"Its result: {row['result']}"] if row["result"] else []
    told += [f"Its error: {row['error_message']}"] if row["error_message"] else []
    return "\n".join(told)


def _after_model_error(row: Mapping[str, Any], error: ModelError) -> SummaryEnd:
    if error.kind not in _MAY_PASS:
        return _failed(row, str(error))
    if error.kind is ModelErrorKind.RATE_LIMIT:  # a busy endpoint is no broken one
        return SummaryEnd(PENDING, delay=max(0.1, error.limit_wait) * random.uniform(1.0, 1.2), counts=False)
    return _again_or_failed(row, str(error), error.retry_after)


def _again_or_failed(row: Mapping[str, Any], problem: str, wait: float | None) -> SummaryEnd:
    attempts = row["summary_attempts"] + 1
    if attempts >= MOST_ATTEMPTS:
        return _failed(row, f"{attempts} attempts failed, the last one: {problem}")
    if wait is None:
        wait = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (attempts - 1))
    delay = max(0.1, wait) * random.uniform(1.0, 1.2)
    data = {"attempt": attempts, "problem": problem[:PROBLEM_CHARS], "again_in": round(delay, 1)}
    return SummaryEnd(PENDING, NewEvent("summary_retry", "worker", data=data), delay=delay)


def _failed(row: Mapping[str, Any], problem: str) -> SummaryEnd:
    log.warning("job %s has no final summary: %s", row["id"], problem)
    return SummaryEnd(FAILED, NewEvent("summary_failed", "worker", data={"problem": problem[:PROBLEM_CHARS]}))


# --- the sweep's part ---


def take_back_summary(job: LockedJob) -> None:
    """What the dead run of a summary leaves, its end being noted already: another try, or none after too many."""
    attempts = job.row["summary_attempts"] + 1
    left = values_after_death(attempts, MOST_ATTEMPTS)
    if left["summary_state"] == FAILED:
        problem = f"its worker died in {attempts} attempts"
        job.update(left, NewEvent("summary_failed", "sweep", data={"problem": problem}))
    else:
        job.update(
            left, NewEvent("summary_retry", "sweep", data={"attempt": attempts, "problem": "its worker died"})
        )


def sweep_followers(process: WorkerProcess, limit: int) -> None:
    """Moves jobs on whose predecessor's summary is there, or has kept them waiting for too long."""
    for job_id in followers_to_go_on(process.db, LONGEST_WAIT, limit):
        if go_on_if_ready(process.installation, job_id):
            process.wake(job_id)


def wake_forgotten_summaries(
    process: WorkerProcess, workers: list[dict[str, Any]], again: float, limit: int
) -> None:
    """Sends wake-ups for due summaries that nobody was told of, as many as there are idle slots."""
    slots = sum(worker["concurrency"] for worker in workers if CONTEXT_QUEUE in worker["queues"])
    idle = slots - count_live_runs(process.db, CONTEXT_QUEUE) - count_live_runs(process.db, RUN_KIND)
    if idle > 0:
        for job_id in take_unwoken_summaries(process.db, again, min(idle, limit)):
            crash_point(CrashPoint.WAKE_COMMITTED)
            process.wakeups.send(SUMMARY, job_id)
