"""Which jobs a list is to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database
from storage.models import jobs
from storage.text import clean_text

HELD = "limited"  # the reason of jobs that a limit holds (see storage.limits)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a job must fit, all of what is given. Times are epoch seconds.

    `title` is a part of it, whatever its case (of ASCII letters, on SQLite). It, and what has no index of its own, is
    compared job by job, newest first, until a page is full.
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
