"""The rows of runs as they begin and end in order, inside the transaction that holds the job's row."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import wall_clock
from storage.models import runs
from storage.prepared import Prepared
from storage.records import RunRef

_BEGIN = Prepared(
    sa.insert(runs),
    columns=("id", "job_id", "kind", "worker", "attempt", "claimed_at", "lease_expires_at"),
)
_END = Prepared(
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("p_run"), runs.c.ended_at.is_(None))
    .values(
        ended_at=wall_clock(),
        outcome=sa.bindparam("p_outcome"),
        steps=sa.bindparam("p_steps", type_=sa.Integer()),
    )
)


def begin_run(
    conn: Connection, run: RunRef, *, kind: str, worker: str, attempt: int, now: float, lease_seconds: float
) -> None:
    """Notes that a run has begun, with its first lease."""
    values = {"id": run.run_id, "job_id": run.job_id, "kind": kind, "worker": worker, "attempt": attempt}
    _BEGIN.run(conn, values | {"claimed_at": now, "lease_expires_at": now + lease_seconds})


def end_run(conn: Connection, run_id: str, outcome: str, steps: int = 0) -> None:
    """Notes how a run has ended; nothing where its end is noted already."""
    _END.run(conn, {"p_run": run_id, "p_outcome": outcome, "p_steps": steps})
