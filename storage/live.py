"""What a model says before its reply is committed: for who looks at the job now, and true for nobody else.

A row of `live_replies` is shown only while the run that wrote it owns the job, its lease holds, and the transcript has
not yet the message that the reply becomes. So whatever a dead worker leaves is never taken for the truth, and the reply's
commit ends it even where nobody deletes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import Connection

from storage.engine import Database, wall_clock
from storage.models import jobs, live_replies, runs, watches
from storage.records import RunRef
from storage.text import clean_json

# Whether the row that was found is of the present reply.
IS_LIVE = sa.and_(
    live_replies.c.job_id == jobs.c.id,
    live_replies.c.run_id == jobs.c.run_id,
    live_replies.c.seq == jobs.c.total_messages + 1,
    sa.exists().where(runs.c.id == live_replies.c.run_id, runs.c.lease_expires_at > wall_clock()),
)


@dataclass(frozen=True, slots=True)
class LiveReply:
    """A reply as far as it has come: `data` as its worker told it, `seq` the number that its message will have."""

    seq: int
    data: dict[str, Any]
    told_at: float


def watch_jobs(db: Database, job_ids: Collection[str], seconds: float) -> None:
    """For so long from now, the workers of these jobs tell what is being written."""
    insert = (sqlite_insert if db.is_sqlite else postgres_insert)(watches)
    until = wall_clock() + seconds
    with db.write() as conn:
        known = conn.execute(sa.select(jobs.c.id).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id)).scalars()
        for job_id in list(known):
            values = {"job_id": job_id, "until": until}
            conn.execute(
                insert.values(values).on_conflict_do_update(
                    index_elements=["job_id"], set_={"until": insert.excluded.until}
                )
            )


def tell_live_if_run_owns(db: Database, run: RunRef, seq: int, data: dict[str, Any]) -> bool:
    """Puts down what the reply says by now. False, and nothing is written: the run has lost its job, or message `seq`
    is committed."""
    insert = (sqlite_insert if db.is_sqlite else postgres_insert)(live_replies)
    told: list[Any] = [
        jobs.c.id,
        sa.literal(run.run_id),
        sa.literal(seq),
        sa.literal(clean_json(data), live_replies.c.data.type),
        wall_clock(),
    ]
    held = [jobs.c.id == run.job_id, jobs.c.run_id == run.run_id, jobs.c.total_messages == seq - 1]
    names = ["job_id", "run_id", "seq", "data", "told_at"]
    statement = insert.from_select(names, sa.select(*told).where(*held)).on_conflict_do_update(
        index_elements=["job_id"], set_={name: insert.excluded[name] for name in names[1:]}
    )
    with db.write() as conn:
        return conn.execute(statement.returning(live_replies.c.job_id)).one_or_none() is not None


def drop_live(conn: Connection, job_id: str) -> None:
    """The reply is committed, or will not be."""
    conn.execute(sa.delete(live_replies).where(live_replies.c.job_id == job_id))


def live_reply(db: Database, job_id: str) -> LiveReply | None:
    """What is being written now. The caller has checked that the job may be read."""
    statement = sa.select(live_replies.c.seq, live_replies.c.data, live_replies.c.told_at).join_from(
        jobs, live_replies, IS_LIVE
    )
    with db.read() as conn:
        row = conn.execute(statement.where(jobs.c.id == job_id)).one_or_none()
        return None if row is None else LiveReply(**row._mapping)


def clear_live(db: Database) -> None:
    """Deletes what runs left behind that are over, and watches that ended. Writes only where there is something."""
    owned = sa.exists().where(jobs.c.id == live_replies.c.job_id, jobs.c.run_id == live_replies.c.run_id)
    left = sa.not_(owned.correlate(live_replies))
    over = watches.c.until < wall_clock()
    with db.read() as conn:
        found = [
            conn.execute(sa.select(table.c.job_id).where(gone).limit(1)).first()
            for table, gone in ((live_replies, left), (watches, over))
        ]
    if any(found):
        with db.write() as conn:
            conn.execute(sa.delete(live_replies).where(left))
            conn.execute(sa.delete(watches).where(over))
