"""How a job looks from outside: one shape for CLI, API and page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from jobs.errors import AmbiguousJobId, JobNotFound
from jobs.installation import Installation
from jobs.reasons import explain, reason_of
from jobs.states import State
from jobs.wakeups import QUEUE_OF_STATE
from storage import comments, listing, subtasks, summaries, transcript
from storage import jobs as store
from storage.listing import JobFilter
from storage.records import Comment, HistoryEvent, Message, Summary
from storage.registry import live_workers
from storage.summaries import summaries_covering

UNSERVED_SECONDS = 10.0  # a worker that is being restarted is not missed


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its owner sees it. Times are epoch seconds; `reason_text` and `next_action` are for people."""

    id: str
    title: str
    state: str
    reason: str | None
    reason_text: str | None
    next_action: str | None
    piece: str
    movement: str
    steps: int
    tokens: int
    cost: float
    cost_known: bool  # False: a model without a price was asked, the true cost is higher
    attempt: int
    priority: int
    worker: str | None
    model: str | None
    result: str | None
    error: str | None
    pending_question: dict[str, Any] | None
    budget: dict[str, float | None]
    task_type: str
    task_identifier: str | None
    repository: str | None
    user: str | None
    metadata: dict[str, Any] | None
    owner: str
    parent_id: str | None
    inherits_from: str | None
    summary_state: str  # of its final summary: none, pending, done, failed
    children_open: int
    children_total: int
    unread_comments: int
    total_messages: int
    total_summaries: int
    total_tool_calls: int
    context_tokens: int  # what the model sees now, as far as it is known
    final_token_count: int | None  # of the context at the job's last pause or end; None before
    final_message_count: int | None
    available_at: float
    created_at: float
    updated_at: float
    started_at: float | None
    completed_at: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: as above, with times as ISO 8601 in UTC."""
        data = asdict(self)
        for name in ("available_at", "created_at", "updated_at", "started_at", "completed_at"):
            data[name] = None if data[name] is None else iso(data[name])
        if data["pending_question"] and "until" in data["pending_question"]:
            data["pending_question"]["until"] = iso(data["pending_question"]["until"])
        return data


def iso(seconds: float) -> str:
    """Epoch seconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_COPIED = (
    "id", "title", "state", "piece", "movement", "steps", "cost", "cost_known", "attempt", "priority", "worker", "model",
    "result", "pending_question", "task_type", "task_identifier", "repository", "user", "metadata", "owner",
    "parent_id", "inherits_from", "summary_state", "children_open", "children_total", "total_messages", "total_summaries",
    "total_tool_calls", "context_tokens", "final_token_count", "final_message_count", "available_at", "created_at", "updated_at", "started_at", "completed_at",
)  # fmt: skip


def view_of(row: Mapping[str, Any], unserved: Collection[str] = ()) -> JobView:
    """The view of a job's row. `unserved`: ids of jobs whose queue no worker serves."""
    reason, told = reason_of(row)
    data = {"id": row["id"], **told}
    for name in ("pause_requested", "cancel_requested", "children_open", "children_total"):
        data[name] = row[name]
    if "until" in data:
        data["at"] = iso(data["until"])
    reason_text, next_action = explain(row["state"], reason, data)
    if row["id"] in unserved:
        queue = QUEUE_OF_STATE[State(row["state"])]
        reason_text = f"no worker serves the {queue} queue"
        next_action = f"start one with: sostenuto worker --queues {queue}"
    return JobView(
        **{name: row[name] for name in _COPIED},
        reason=reason,
        reason_text=reason_text,
        next_action=next_action,
        tokens=row["prompt_tokens"] + row["completion_tokens"],
        error=row["error_message"],
        budget={name: row[name] for name in ("max_steps", "max_tokens", "max_cost", "max_seconds")},
        unread_comments=row["inbox_total"] - row["inbox_seen"],
    )


def get_job(installation: Installation, job_id: str, owner: str | None) -> JobView:
    """The job. Raises JobNotFound, also when it is someone else's (`owner` None: an administrator)."""
    row = store.get_job(installation.db, job_id, owner)
    return view_of(row, _unserved(installation, [row]))


def list_jobs(
    installation: Installation,
    owner: str | None,
    states: Sequence[str] | None = None,
    limit: int = 50,
    before: str | None = None,
    *,
    parent: str | None = None,
) -> list[JobView]:
    """Newest first; `before` is the last id of the previous page; `parent`: only the subtasks of this job."""
    rows = listing.list_jobs(installation.db, owner, states, limit, before, parent=parent)
    unserved = _unserved(installation, rows)
    return [view_of(row, unserved) for row in rows]


def queue_without_workers(installation: Installation, row: Mapping[str, Any]) -> str | None:
    """The queue that a job's row waits for, where no worker has served it for ten seconds."""
    return QUEUE_OF_STATE[State(row["state"])] if _unserved(installation, [row]) else None


def worker_state(row: Mapping[str, Any]) -> str:
    """Of a worker that runs: whether it takes jobs, or was asked to leave when it has none."""
    return "running" if row["drain_requested_at"] is None else "draining"


def _unserved(installation: Installation, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ids of those jobs that wait, for more than ten seconds, for a queue that no worker serves.

    Asks the database only where a job waits so long.
    """
    late = installation.db.clock() - UNSERVED_SECONDS
    waiting = {
        row["id"]: QUEUE_OF_STATE[State(row["state"])]
        for row in rows
        if row["run_id"] is None and State(row["state"]) in QUEUE_OF_STATE and row["available_at"] < late
    }
    if not waiting:
        return set()
    workers = live_workers(installation.db, 2 * installation.settings.lease_seconds, taking=True)
    served = {queue for worker in workers for queue in worker["queues"]}
    return {job_id for job_id, queue in waiting.items() if queue not in served}


def find_jobs(
    installation: Installation,
    wanted: JobFilter,
    limit: int,
    *,
    before: str | None = None,
    after: str | None = None,
    oldest_first: bool = False,
) -> list[JobView]:
    """Jobs that fit, newest or oldest first, with ids < `before` and > `after`."""
    found = listing.find_jobs(
        installation.db, wanted, limit, before=before, after=after, oldest_first=oldest_first
    )
    return [view_of(row) for row in found]


def list_children(installation: Installation, job_id: str) -> list[JobView]:
    """The job's subtasks, in the order in which they were begun. The caller has checked the owner."""
    return [view_of({**row, "worker": None}) for row in subtasks.list_children(installation.db, job_id)]


def find_job_id(installation: Installation, prefix: str, owner: str | None) -> str:
    """The one id that begins, or ends, with `prefix`. Raises JobNotFound, or AmbiguousJobId with the candidates."""
    found = store.job_ids_like(installation.db, prefix, owner)
    if not found:
        raise JobNotFound(prefix)
    if len(found) > 1 and prefix not in found:
        raise AmbiguousJobId(prefix, found)
    return prefix if prefix in found else found[0]


def list_messages(
    installation: Installation, job_id: str, after: int = 0, limit: int | None = None
) -> list[Message]:
    """Transcript rows with seq > `after`. The caller has checked the owner."""
    return transcript.list_messages(installation.db, job_id, after, limit)


def summarised_by(installation: Installation, job_id: str, rows: Sequence[Message]) -> dict[int, int]:
    """For the messages of a page that the model no longer sees: seq → number of the summary that stands for it."""
    if not rows:
        return {}
    found = summaries_covering(installation.db, job_id, rows[0].seq, rows[-1].seq)
    turns = [row.seq for row in rows if row.kind in ("assistant", "tool", "gap")]
    return {seq: number for first, last, number in found for seq in turns if first <= seq <= last}


def list_events(
    installation: Installation, job_id: str, after: int = 0, limit: int | None = None
) -> list[HistoryEvent]:
    """History rows with seq > `after`. The caller has checked the owner."""
    return store.list_events(installation.db, job_id, after, limit)


def list_comments(installation: Installation, job_id: str, after: int = 0) -> list[Comment]:
    """Comments with number > `after`. The caller has checked the owner."""
    return comments.list_comments(installation.db, job_id, after)


def list_summaries(
    installation: Installation, job_id: str, after: int = 0, limit: int | None = None
) -> list[Summary]:
    """The job's summaries with number > `after`. The caller has checked the owner."""
    return summaries.list_summaries(installation.db, job_id, after, limit)


def summary_dict(summary: Summary) -> dict[str, Any]:
    """For JSON, with its time as ISO 8601 in UTC."""
    return asdict(summary) | {"created_at": iso(summary.created_at)}
