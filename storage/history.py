"""A job's history: one row for everything that happened to it."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.models import job_events
from storage.prepared import Prepared
from storage.records import NewEvent
from storage.text import clean_json, clean_text

_COLUMNS = ("job_id", "seq", "kind", "at", "actor", "from_state", "to_state", "run_id", "data")
_APPEND = Prepared(sa.insert(job_events), columns=_COLUMNS)


def append_events(
    conn: Connection, job_id: str, new: Sequence[NewEvent], *, last_seq: int, now: float, run_id: str | None
) -> None:
    """Inserts history rows whose numbers the job's row has already reserved, ending at `last_seq`."""
    if not new:
        return
    first = last_seq - len(new) + 1
    _APPEND.run_each(
        conn,
        [
            {
                "job_id": job_id,
                "seq": first + index,
                "kind": event.kind,
                "at": now,
                "actor": clean_text(event.actor),
                "from_state": event.from_state,
                "to_state": event.to_state,
                "run_id": run_id,
                "data": clean_json(event.data),
            }
            for index, event in enumerate(new)
        ],
    )
