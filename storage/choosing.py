"""Which job a claim takes: the highest priority of which one is due; of it the next owner's in turn; of that owner the
next user's; of these the hinted one, else the longest due.

Turns go round: an owner's thousand jobs and another's one stand in two lines, and so do the users of one owner. Whose
turn it is, the last run of the same priority tells. Everything is found by going from line to line in an index: what is
due later, and the rest of the lines, is not walked over, however much it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import wall_clock
from storage.models import jobs, runs
from storage.prepared import Prepared

_STATE = sa.bindparam("p_state", type_=sa.Text())
_KIND = sa.bindparam("p_kind", type_=sa.Text())
_ATTEMPTS = sa.bindparam("p_attempts", type_=sa.Integer())
_PRIORITY = sa.bindparam("p_priority", type_=sa.Integer())
_BELOW = sa.bindparam("p_below", type_=sa.Integer())
_OWNER = sa.bindparam("p_owner", type_=sa.Text())
_USER = sa.bindparam("p_user", type_=sa.Text())
_JOB = sa.bindparam("p_job", type_=sa.Text())
_TOP = 2**31 - 1  # above every priority, and every count of attempts


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whom a claim is for: jobs in `state`, in the turns of runs of `kind`; `hint` wins among equals."""

    state: str
    kind: str
    attempts: int | None  # only jobs whose runs died less often in a row
    hint: str | None
    locking: bool  # pass over rows that somebody holds


def choose(conn: Connection, wanted: Wanted) -> Any | None:
    """The best due job's row: id, and what limits and turns go by. None: nothing is due."""
    below = _TOP
    while (level := _one(conn, _DUE_LEVEL, wanted, p_below=below).level) is not None:  # type: ignore[union-attr]  # a maximum is always one row
        best = _of_level(conn, wanted, level)
        if best is not None:
            return best
        below = level  # others are claiming all that is due of it
    return None


def line_of(chosen: Any, *, locking: bool) -> sa.Select[Any]:
    """The ids of the chosen job's line, longest due first; `locking` as in `Wanted`."""
    given = {"p_state": chosen.state, "p_priority": chosen.priority, "p_attempts": _TOP}
    given |= {"p_owner": chosen.owner, "p_user": chosen.user_key}
    line = (_LOCKED_LINE if locking else _LINE).with_only_columns(jobs.c.id).params(given)
    return line.with_for_update(skip_locked=True) if locking else line


def _of_level(conn: Connection, wanted: Wanted, level: int) -> Any | None:
    """By turns: the next owner that has something due; where others are claiming all of it, the one after that."""
    tried: set[str] = set()
    owner = None
    while (found := _one(conn, _NEXT_OWNER, wanted, p_priority=level, p_owner=owner)) is not None:
        if found.owner in tried:
            return None
        best = _of_owner(conn, wanted, level, found.owner)
        if best is not None:
            return best
        owner = found.owner
        tried.add(owner)
    return None


def _of_owner(conn: Connection, wanted: Wanted, level: int, owner: str) -> Any | None:
    given = {"p_priority": level, "p_owner": owner}
    tried: set[str] = set()
    user = None
    while (found := _one(conn, _NEXT_USER, wanted, **given, p_user=user)) is not None:
        user = found.user_key
        if user in tried:
            return None
        best = _of_user(conn, wanted, found)
        if best is not None:
            return best
        tried.add(user)
    return None


def _of_user(conn: Connection, wanted: Wanted, first: Any) -> Any | None:
    """The hinted job of this line, else its first. No more than that one is locked: another claim, whose hint a locked
    job was, would find nothing, and nobody would be told of that job again."""
    given = {"p_priority": first.priority, "p_owner": first.owner, "p_user": first.user_key}
    if wanted.hint not in (None, first.id):
        hinted = _one(conn, _HINTED, wanted, **given, p_job=wanted.hint)
        if hinted is not None:
            return hinted
    return _one(conn, _LOCKED_FIRST, wanted, **given) if wanted.locking else first


def _one(conn: Connection, statement: Prepared, wanted: Wanted, **more: Any) -> Any | None:
    attempts = _TOP if wanted.attempts is None else wanted.attempts
    given = {"p_state": wanted.state, "p_kind": wanted.kind, "p_attempts": attempts, **more}
    return statement.one_or_none(conn, given)


# --- the statements, made once: making one costs more than running it ---


def _of_state(table: sa.FromClause) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.state == _STATE, table.c.held_for == ""


def _free(table: sa.FromClause) -> tuple[sa.ColumnElement[bool], ...]:
    return *_of_state(table), table.c.run_id.is_(None), table.c.attempt < _ATTEMPTS


def _of_priority(table: sa.FromClause) -> tuple[sa.ColumnElement[bool], ...]:
    return *_free(table), table.c.priority == _PRIORITY, table.c.completed_at.is_(None)  # as the index has it


def _due_level() -> sa.Select[Any]:
    """The highest priority, less than a given one, of which a job is due now: looks at the first job of each."""
    highest = sa.select(sa.func.max(jobs.c.priority).label("priority"))
    levels = highest.where(*_of_state(jobs), jobs.c.priority < _BELOW).cte("levels", recursive=True)
    lower = sa.select(sa.func.max(jobs.c.priority)).where(
        *_of_state(jobs), jobs.c.priority < levels.c.priority
    )
    levels = levels.union_all(
        sa.select(lower.correlate(levels).scalar_subquery()).where(levels.c.priority.isnot(None))
    )
    first_due = sa.select(sa.func.min(jobs.c.available_at))
    first_due = first_due.where(*_free(jobs), jobs.c.priority == levels.c.priority)
    is_due = first_due.correlate(levels).scalar_subquery() <= wall_clock()
    return sa.select(sa.func.max(levels.c.priority)).where(is_due)


def _first(*of: sa.ColumnElement[bool], beside: sa.FromClause | None = None) -> sa.ScalarSelect[Any]:
    """The id of the first job that fits, in the order of lines; `beside` is what `of` refers to."""
    order = (_JOBS.c.owner, _JOBS.c.user_key, _JOBS.c.available_at, _JOBS.c.id)
    first = sa.select(_JOBS.c.id).where(*_of_priority(_JOBS), *of).order_by(*order).limit(1)
    return (first if beside is None else first.correlate(beside)).scalar_subquery()


def _next_in_turn(*within: sa.ColumnElement[bool], after: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The first job of the first line with something due: of those `after` the last turn, else of all.

    `within` one owner, or over all of them.
    """

    def walk(name: str, *start: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
        firsts = sa.select(_first(*within, *start).label("id")).cte(name, recursive=True)

        def its(column: str) -> sa.ScalarSelect[Any]:  # no join: SQLite would read all jobs to make it faster
            return (
                sa.select(jobs.c[column]).where(jobs.c.id == firsts.c.id).correlate(firsts).scalar_subquery()
            )

        # Not by comparing pairs: SQLite would walk the whole line for the end of it.
        next_user = (_JOBS.c.owner == its("owner"), _JOBS.c.user_key > its("user_key"))
        step: sa.ColumnElement[Any] = _first(*next_user, beside=firsts)
        if not within:
            step = sa.func.coalesce(step, _first(_JOBS.c.owner > its("owner"), beside=firsts))
        going_on = sa.select(step).select_from(firsts).where(its("available_at") > wall_clock())
        firsts = firsts.union_all(going_on)
        return sa.select(firsts.c.id).where(its("available_at") <= wall_clock()).limit(1).scalar_subquery()

    return _CHOSEN.where(jobs.c.id == sa.func.coalesce(walk("later", after), walk("from_the_first")))


def _last(column: sa.Column[str], *of: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
    """Whose turn it was last."""
    served = sa.select(column).where(runs.c.kind == _KIND, runs.c.priority == _PRIORITY, *of)
    return served.order_by(runs.c.claimed_at.desc()).limit(1).scalar_subquery()


_JOBS = jobs.alias("j")
_CHOSEN = sa.select(
    *(
        jobs.c[name]
        for name in ("id", "state", "priority", "owner", "user", "user_key", "repository", "piece")
    )
)
_COLUMNS = tuple(_CHOSEN.selected_columns)
_DUE_LEVEL = Prepared(_due_level(), returning=(sa.column("level", sa.Integer()),))
_NEXT_OWNER = Prepared(
    _next_in_turn(after=_JOBS.c.owner > sa.func.coalesce(_OWNER, _last(runs.c.owner))), returning=_COLUMNS
)
_NEXT_USER = Prepared(
    _next_in_turn(
        _JOBS.c.owner == _OWNER,
        after=_JOBS.c.user_key > sa.func.coalesce(_USER, _last(runs.c.user_key, runs.c.owner == _OWNER)),
    ),
    returning=_COLUMNS,
)
_DUE = (*_of_priority(jobs), jobs.c.available_at <= wall_clock())
_SAME = (jobs.c.owner == _OWNER, jobs.c.user_key == _USER)
_LINE = _CHOSEN.where(*_DUE, *_SAME).order_by(jobs.c.available_at, jobs.c.id)
_HINTED = Prepared(  # FOR UPDATE says nothing on SQLite, where writers are alone
    _CHOSEN.where(*_DUE, *_SAME, jobs.c.id == _JOB).with_for_update(skip_locked=True), returning=_COLUMNS
)
# The same line for Postgres, in the order that the index of turns alone has: it guesses how the owners' jobs are mixed,
# and would now and then walk over a thousand of one line, by another index, for the first of another.
_SAME_AGAIN = (jobs.c.owner == _OWNER, jobs.c.user_key.between(_USER, _USER))
_LOCKED_LINE = _CHOSEN.where(*_DUE, *_SAME_AGAIN).order_by(jobs.c.user_key, jobs.c.available_at, jobs.c.id)
_LOCKED_FIRST = Prepared(_LOCKED_LINE.limit(1).with_for_update(skip_locked=True), returning=_COLUMNS)
