"""The rows of runs as they begin and end in order, inside the transaction that holds the job's row."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import wall_clock
from storage.models import runs
from storage.prepared import Prepared
from storage.records import RunRef

_COLUMNS = ("id", "job_id", "kind", "worker", "attempt", "claimed_at", "lease_expires_at")
_TURN = ("priority", "owner", "user_key")  # which line of jobs it serves: see storage.choosing
_BEGIN = Prepared(sa.insert(runs), columns=_COLUMNS)
_BEGIN_TURN = Prepared(sa.insert(runs), columns=(*_COLUMNS, *_TURN))
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
    conn: Connection,
    run: RunRef,
    *,
    kind: str,
    worker: str,
    attempt: int,
    now: float,
    lease_seconds: float,
    turn_of: Any = None,
) -> None:
    """Notes that a run has begun, with its first lease; `turn_of`: the job's row, where jobs take turns in such runs."""
    values = {"id": run.run_id, "job_id": run.job_id, "kind": kind, "worker": worker, "attempt": attempt}
    values |= {"claimed_at": now, "lease_expires_at": now + lease_seconds}
    if turn_of is None:
        _BEGIN.run(conn, values)
    else:
        _BEGIN_TURN.run(conn, values | {name: getattr(turn_of, name) for name in _TURN})


def end_run(conn: Connection, run_id: str, outcome: str, steps: int = 0) -> None:
    """Notes how a run has ended; nothing where its end is noted already."""
    _END.run(conn, {"p_run": run_id, "p_outcome": outcome, "p_steps": steps})
