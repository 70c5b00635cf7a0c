"""Comments: what people and the system say to a job, and the agent's questions and results. They are added, never changed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.models import comments, jobs
from storage.prepared import MOST_ROWS, Prepared
from storage.records import Comment
from storage.text import clean_text

SYSTEM = "system"  # the author of comments that nobody wrote
MOST_HOPS = 20  # of a chain of inheritance that is looked at
_COLUMNS = tuple(comments.c[name] for name in Comment.__slots__)
_ADD = Prepared(sa.insert(comments), columns=Comment.__slots__)
_AFTER = Prepared(
    sa.select(*_COLUMNS)
    .where(comments.c.job_id == sa.bindparam("p_job"), comments.c.number > sa.bindparam("p_after"))
    .order_by(comments.c.number)
    .limit(sa.bindparam("p_limit", type_=sa.Integer())),
    returning=_COLUMNS,
)


def add_comment(conn: Connection, comment: Comment) -> Comment:
    """Adds it, with clean texts, as the caller has numbered it under the job's row; returns what is kept."""
    kept = replace(comment, author=clean_text(comment.author), text=clean_text(comment.text))
    _ADD.run(conn, {name: getattr(kept, name) for name in Comment.__slots__})
    return kept


def list_comments(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[Comment]:
    """Comments with number > `after`, in order."""
    values = {"p_job": job_id, "p_after": after, "p_limit": MOST_ROWS if limit is None else limit}
    with db.read() as conn:
        return [Comment(**row._asdict()) for row in _AFTER.all(conn, values)]


def answer_to(db: Database, job_id: str, call_id: str) -> Comment | None:
    """The comment that answers a parked call, if it is there."""
    statement = sa.select(comments).where(comments.c.job_id == job_id, comments.c.answers_call == call_id)
    with db.read() as conn:
        row = conn.execute(statement.order_by(comments.c.number).limit(1)).mappings().one_or_none()
        return None if row is None else Comment(**row)


_THREAD_KEY = (jobs.c.task_type, jobs.c.task_identifier, jobs.c.repository, jobs.c.user)


def thread_remarks(db: Database, job: dict[str, Any], limit: int) -> list[Comment]:
    """The last `limit` remarks of the job's thread, oldest first. `job` is its row.

    The thread is the job, those it inherits from, and its owner's other jobs with the same key: task type, identifier,
    repository and user, as given. What the system told another of these jobs is left out.
    """
    given = {
        f"p_{column.name}": job[column.name] for column in (*_THREAD_KEY, jobs.c.owner, jobs.c.inherits_from)
    }
    statement = _thread(inherits=job["inherits_from"] is not None, has_key=bool(job["task_identifier"]))
    with db.read() as conn:
        rows = statement.all(conn, given | {"p_job": job["id"], "p_limit": limit})
    return [Comment(**row._asdict()) for row in reversed(rows)]


@lru_cache
def _thread(*, inherits: bool, has_key: bool) -> Prepared:
    """Made once for each kind of thread."""
    job_id = sa.bindparam("p_job", type_=sa.Text())
    of = [jobs.c.id == job_id]
    if inherits:
        of.append(jobs.c.id.in_(_chain()))
    if has_key:
        same_key = (column.is_not_distinct_from(_given(column)) for column in _THREAD_KEY)
        of.append(sa.and_(jobs.c.owner == _given(jobs.c.owner), *same_key))
    told = (comments.c.job_id == job_id, comments.c.answers_call.isnot(None), comments.c.author != SYSTEM)
    statement = sa.select(*_COLUMNS).join(jobs, jobs.c.id == comments.c.job_id)
    statement = statement.where(sa.or_(*of), sa.or_(*told))
    newest_first = statement.order_by(comments.c.created_at.desc(), comments.c.number.desc())
    return Prepared(newest_first.limit(sa.bindparam("p_limit", type_=sa.Integer())), returning=_COLUMNS)


def _chain() -> sa.Select[tuple[str]]:
    """The ids of the jobs that the job inherits from, directly or not, the nearest ones."""
    owner = _given(jobs.c.owner)
    chain = (
        sa.select(jobs.c.id, jobs.c.inherits_from, sa.literal(1).label("hop"))
        .where(jobs.c.id == _given(jobs.c.inherits_from), jobs.c.owner == owner)
        .cte("chain", recursive=True)
    )
    earlier = sa.select(jobs.c.id, jobs.c.inherits_from, chain.c.hop + 1)
    chain = chain.union_all(
        earlier.join(chain, jobs.c.id == chain.c.inherits_from).where(chain.c.hop < MOST_HOPS)
    )
    return sa.select(chain.c.id)


def _given(column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(f"p_{column.name}", type_=column.type)
