"""Lists of jobs: which jobs one is to show, its pages, and how many there are of each state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from storage.engine import Database
from storage.models import STATES, jobs, runs
from storage.text import clean_text

HELD = "limited"  # the reason of jobs that a limit holds (see storage.limits)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a job must fit, all of what is given. Times are epoch seconds.

    `title` is a part of it, whatever its case (of ASCII letters, on SQLite). It, and what has no index of its own (see
    `is_searched`), is compared job by job, newest first, until a page is full.
    """

    owner: str | None = None
    states: Sequence[str] | None = None
    reasons: Sequence[str] | None = None
    parent: str | None = None
    piece: str | None = None
    task_type: str | None = None
    task_identifier: str | None = None
    repository: str | None = None
    user: str | None = None
    title: str | None = None
    created_after: float | None = None
    created_before: float | None = None

    @property
    def is_searched(self) -> bool:
        """Whether many jobs may have to be looked at to find a few: `floor_of` bounds that."""
        unindexed = (self.piece, self.task_type, self.repository, self.user, self.title)
        timed = self.created_after is not None or self.created_before is not None
        return timed or any(value is not None for value in unindexed)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """For a WHERE."""
        equal = {
            jobs.c.owner: self.owner,
            jobs.c.parent_id: self.parent,
            jobs.c.piece: self.piece,
            jobs.c.task_type: self.task_type,
            jobs.c.task_identifier: self.task_identifier,
            jobs.c.repository: self.repository,
            jobs.c.user: self.user,
        }
        found = [column == clean_text(value) for column, value in equal.items() if value is not None]
        if self.states:
            found.append(jobs.c.state.in_(self.states))
        if self.reasons:
            found.append(_has_reason([clean_text(reason) for reason in self.reasons]))
        if self.title is not None:
            found.append(jobs.c.title.icontains(clean_text(self.title), autoescape=True))
        if self.created_after is not None:
            found.append(jobs.c.created_at >= self.created_after)
        if self.created_before is not None:
            found.append(jobs.c.created_at < self.created_before)
        return found


def count_jobs(db: Database, wanted: JobFilter) -> int:
    """How many jobs fit now."""
    with db.read() as conn:
        return conn.execute(
            sa.select(sa.func.count()).select_from(jobs).where(*wanted.conditions())
        ).scalar_one()


def _has_reason(reasons: Sequence[str]) -> sa.ColumnElement[bool]:
    """A limit that holds a job is its reason, whatever it waits for otherwise."""
    held = sa.and_(jobs.c.state == "queued", jobs.c.held_for > "")
    own = sa.and_(jobs.c.reason.in_(reasons), sa.not_(held))
    return sa.or_(own, held) if HELD in reasons else own


def with_worker() -> sa.Select[Any]:
    """Jobs' rows, with the worker whose run each one has."""
    return sa.select(jobs, runs.c.worker).join_from(jobs, runs, runs.c.id == jobs.c.run_id, isouter=True)


def find_jobs(
    db: Database,
    wanted: JobFilter,
    limit: int,
    *,
    before: str | None = None,
    after: str | None = None,
    floor: str | None = None,
    oldest_first: bool = False,
) -> list[dict[str, Any]]:
    """Jobs that fit, newest or oldest first (ids are ordered by time), with ids < `before`, > `after`, ≥ `floor`."""
    bounds = []
    if before is not None:
        bounds.append(jobs.c.id < clean_text(before))
    if after is not None:
        bounds.append(jobs.c.id > clean_text(after))
    if floor is not None:
        bounds.append(jobs.c.id >= clean_text(floor))
    order = jobs.c.id.asc() if oldest_first else jobs.c.id.desc()
    states = list(dict.fromkeys(wanted.states or ()))
    if len(states) > 1:
        # A page of each state is read from the index's ends: not all of them, to be sorted.
        parts = [
            sa.select(jobs.c.id).where(*replace(wanted, states=[state]).conditions(), *bounds).order_by(order).limit(limit)
            for state in states
        ]  # fmt: skip
        ids = sa.union_all(*(sa.select(part.subquery().c.id) for part in parts))
        statement = with_worker().where(jobs.c.id.in_(ids))
    else:
        statement = with_worker().where(*wanted.conditions(), *bounds)
    with db.read() as conn:
        return [row._asdict() for row in conn.execute(statement.order_by(order).limit(limit))]


def list_jobs(
    db: Database,
    owner: str | None,
    states: Sequence[str] | None,
    limit: int,
    before: str | None,
    *,
    parent: str | None = None,
) -> list[dict[str, Any]]:
    """Newest first; `before` is the last id of the previous page."""
    return find_jobs(db, JobFilter(owner, states, parent=parent), limit, before=before)


def floor_of(db: Database, owner: str | None, before: str | None, count: int) -> str | None:
    """The id of the last of the `count` newest jobs with ids < `before`; None: there are not more than so many.

    A search that goes down to it looks at so many jobs and no more; the next one goes on with it as its `before`.
    """
    statement = sa.select(jobs.c.id).order_by(jobs.c.id.desc()).offset(count - 1).limit(2)
    if owner is not None:
        statement = statement.where(jobs.c.owner == clean_text(owner))
    if before is not None:
        statement = statement.where(jobs.c.id < clean_text(before))
    with db.read() as conn:
        found = list(conn.execute(statement).scalars())
    return found[0] if len(found) == 2 else None


def count_by_state(db: Database, owner: str | None) -> dict[str, int]:
    """How many jobs of the owner (None: of all) are in each state. Reads an index from end to end."""
    statement = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
    if owner is not None:
        statement = statement.where(jobs.c.owner == clean_text(owner))
    with db.read() as conn:
        found = {str(state): int(count) for state, count in conn.execute(statement)}
    return {state: found.get(state, 0) for state in STATES}
