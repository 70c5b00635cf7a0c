"""Finding jobs by what people look for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from storage.engine import Database
from storage.jobs import JobRow
from storage.models import jobs, runs
from storage.text import clean_text


@dataclass(frozen=True, slots=True)
class Filter:
    """What found jobs have in common; None or nothing: anything. `text` is in the title, in any case."""

    owner: str | None = None
    states: Sequence[str] = ()
    piece: str | None = None
    text: str | None = None


def find_jobs(db: Database, wanted: Filter, limit: int, before: str | None = None) -> list[JobRow]:
    """Newest first, with the workers of present runs; `before` is the last id of the previous page."""
    statement = sa.select(jobs, runs.c.worker).join_from(jobs, runs, runs.c.id == jobs.c.run_id, isouter=True)
    if wanted.owner is not None:
        statement = statement.where(jobs.c.owner == clean_text(wanted.owner))
    if wanted.states:
        statement = statement.where(jobs.c.state.in_(wanted.states))
    if wanted.piece:
        statement = statement.where(jobs.c.piece == clean_text(wanted.piece))
    if wanted.text:
        statement = statement.where(jobs.c.title.icontains(clean_text(wanted.text), autoescape=True))
    if before is not None:
        statement = statement.where(jobs.c.id < clean_text(before))
    with db.read() as conn:
        found = conn.execute(statement.order_by(jobs.c.id.desc()).limit(limit))
        return [row._asdict() for row in found]
