"""Who acts now, for the audit log. The doors say it once; what is done behind them is recorded with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from jobs.installation import Installation
from jobs.views import iso
from storage import audit
from storage.audit import AuditRecord, AuditRow
from storage.jobs import LockedJob
from storage.observing import CallRow


@dataclass(frozen=True, slots=True)
class Source:
    """The door, and what came through it: the id of the token or session, and the client's address."""

    via: str = "worker"
    credential: str | None = None
    address: str | None = None


_WORKER = Source()
_source: ContextVar[Source] = ContextVar("audit_source", default=_WORKER)


@contextmanager
def coming_from(source: Source) -> Iterator[None]:
    """What is recorded in the block, also in threads that it waits for, came from there."""
    before = _source.set(source)
    try:
        yield
    finally:
        _source.reset(before)


def entry(kind: str, actor: str, job_id: str | None = None, **data: Any) -> AuditRecord:
    """A record of the present source."""
    return AuditRecord(kind, actor, job_id=job_id, data=data or None, **asdict(_source.get()))


def note(job: LockedJob, kind: str, actor: str, **data: Any) -> None:
    """Records what is done to the job, in the same transaction."""
    audit.add_record(job.conn, entry(kind, actor, job.row["id"], **data))


def record(installation: Installation, kind: str, actor: str, job_id: str | None = None, **data: Any) -> None:
    """Records what has been done, or is about to be, outside of the database."""
    audit.add_records(installation.db, entry(kind, actor, job_id, **data))


def record_dict(row: AuditRow) -> dict[str, Any]:
    """For JSON, with the time as ISO 8601 in UTC."""
    return asdict(row) | {"at": iso(row.at)}


def call_record(call: CallRow) -> dict[str, Any]:
    """A tool call as the audit tells it: what it was by its hash, and how it ended; neither arguments nor result."""
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments_sha256": sha256(call.arguments.encode(errors="replace")).hexdigest(),
        "state": call.state,
        "is_error": call.is_error,
        "started_at": None if call.started_at is None else iso(call.started_at),
        "ended_at": None if call.ended_at is None else iso(call.ended_at),
    }
