"""Turns at endpoints whose use is limited: how many calls at once, how many calls and tokens a minute, over all workers.

A job that wants to call asks for its turn. Its place by the limits of a minute is given out once, in the order of
asking, so that nobody is overtaken however often the others ask; a place among the calls at once goes to whoever has
waited longest. A place is held by a run: when the run is over or its lease has expired, so is its hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import Connection, Row

from storage.engine import Database, wall_clock
from storage.models import endpoint_rates, endpoint_turns, jobs, runs
from storage.records import RunRef
from storage.text import clean_text

BURST_SECONDS = 10.0  # of a minute's calls may begin at once, after a pause
LOOK_AGAIN_SECONDS = 5.0  # a job that waits for a place is woken when one is free; this is for the rest
GONE_SECONDS = 120.0  # a waiting job that has not asked for so long after its time has lost its turn


@dataclass(frozen=True, slots=True)
class Limits:
    """None: not limited."""

    concurrency: int | None
    requests_per_minute: int | None
    tokens_per_minute: int | None


def take_turn(db: Database, endpoint: str, limits: Limits, run: RunRef, tokens: int) -> float | None:
    """None: the run may call now, and holds a place until `leave_turn`. Else the seconds after which to ask again.

    `tokens` is what the call is expected to take. Raises StorageError.
    """
    endpoint = clean_text(endpoint)
    with db.write() as conn:
        rates = _locked_rates(db, conn, endpoint)
        now: float = conn.execute(sa.select(wall_clock())).scalar_one()
        _drop_the_gone(conn, endpoint, now)
        mine = conn.execute(_of(endpoint, run.job_id)).one_or_none()
        if mine is None:
            mine = _queue(conn, rates, limits, run, tokens=tokens, now=now)
        if mine.due_at > now:
            wait: float | None = mine.due_at - now
        elif limits.concurrency is not None and _places_before(conn, mine, now) >= limits.concurrency:
            wait = LOOK_AGAIN_SECONDS
        else:
            wait = None
        held_by = run.run_id if wait is None else None
        conn.execute(_update(endpoint, run.job_id).values(run_id=held_by, seen_at=now))
        return wait


def leave_turn(db: Database, endpoint: str, limits: Limits, run: RunRef, more_tokens: int) -> str | None:
    """Gives the place back; returns a job that waits for one and is due now: its wake-up is to be sent.

    `more_tokens` is what the call took beyond what was expected; it may be negative. Raises StorageError.
    """
    endpoint = clean_text(endpoint)
    with db.write() as conn:
        if limits.tokens_per_minute is not None and more_tokens:
            shift = more_tokens * 60.0 / limits.tokens_per_minute
            conn.execute(
                sa.update(endpoint_rates)
                .where(endpoint_rates.c.endpoint == endpoint)
                .values(tokens_at=endpoint_rates.c.tokens_at + shift)
            )
        conn.execute(
            sa.delete(endpoint_turns).where(
                endpoint_turns.c.endpoint == endpoint,
                endpoint_turns.c.job_id == run.job_id,
                endpoint_turns.c.run_id == run.run_id,
            )
        )
    return _wake_next(db, endpoint) if limits.concurrency is not None else None


def _wake_next(db: Database, endpoint: str) -> str | None:
    """In a transaction of its own: it writes a job's row, and nothing may be locked before that."""
    waiting = (
        sa.select(endpoint_turns.c.job_id)
        .where(
            endpoint_turns.c.endpoint == endpoint,
            endpoint_turns.c.run_id.is_(None),
            endpoint_turns.c.due_at <= wall_clock(),
        )
        .order_by(endpoint_turns.c.asked_at, endpoint_turns.c.job_id)
        .limit(1)
    )
    with db.read() as conn:
        job_id = conn.execute(waiting).scalar_one_or_none()
    if job_id is None:
        return None
    with db.write() as conn:
        woken = conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == job_id, jobs.c.state == "queued", jobs.c.reason == "rate_limited")
            .values(available_at=wall_clock(), woken_at=wall_clock())
        )
        return job_id if woken.rowcount == 1 else None


def _locked_rates(db: Database, conn: Connection, endpoint: str) -> Row[Any]:
    """The endpoint's row, and with it the right to be the only one here."""
    insert = (sqlite_insert if db.is_sqlite else postgres_insert)(endpoint_rates)
    conn.execute(insert.values(endpoint=endpoint).on_conflict_do_nothing())
    statement = sa.select(endpoint_rates).where(endpoint_rates.c.endpoint == endpoint)
    return conn.execute(statement if db.is_sqlite else statement.with_for_update()).one()


def _drop_the_gone(conn: Connection, endpoint: str, now: float) -> None:
    """Holds of runs that are over, and turns of jobs that will not come for them."""
    run_lives = sa.exists().where(
        runs.c.id == endpoint_turns.c.run_id, runs.c.ended_at.is_(None), runs.c.lease_expires_at > now
    )
    job_comes = sa.exists().where(
        jobs.c.id == endpoint_turns.c.job_id,
        sa.or_(
            jobs.c.state.in_(("queued", "running", "compressing")),
            jobs.c.summary_state == "pending",  # a job that is over, whose summary is still to be written
        ),
    )
    long_gone = sa.and_(
        endpoint_turns.c.due_at < now - GONE_SECONDS, endpoint_turns.c.seen_at < now - GONE_SECONDS
    )
    conn.execute(
        sa.delete(endpoint_turns).where(
            endpoint_turns.c.endpoint == endpoint,
            sa.or_(
                sa.and_(endpoint_turns.c.run_id.isnot(None), ~run_lives),
                sa.and_(endpoint_turns.c.run_id.is_(None), sa.or_(~job_comes, long_gone)),
            ),
        )
    )


def _queue(
    conn: Connection,
    rates: Row[Any],
    limits: Limits,
    run: RunRef,
    *,
    tokens: int,
    now: float,
) -> Row[Any]:
    """Gives the job its time: the next that both limits of a minute allow."""
    endpoint = rates.endpoint
    requests_at, tokens_at = max(rates.requests_at, now), max(rates.tokens_at, now)
    due = now
    if limits.requests_per_minute is not None:
        due = max(due, requests_at - BURST_SECONDS)
        requests_at += 60.0 / limits.requests_per_minute
    if limits.tokens_per_minute is not None:
        due = max(due, tokens_at - BURST_SECONDS)
        tokens_at += tokens * 60.0 / limits.tokens_per_minute
    conn.execute(
        sa.update(endpoint_rates)
        .where(endpoint_rates.c.endpoint == endpoint)
        .values(requests_at=requests_at, tokens_at=tokens_at)
    )
    values = {"endpoint": endpoint, "job_id": run.job_id, "asked_at": now, "due_at": due, "seen_at": now}
    conn.execute(sa.insert(endpoint_turns).values(values))
    return conn.execute(_of(endpoint, run.job_id)).one()


def _places_before(conn: Connection, mine: Row[Any], now: float) -> int:
    """Calls that others make now, and jobs that have waited longer for a place."""
    others = sa.and_(endpoint_turns.c.endpoint == mine.endpoint, endpoint_turns.c.job_id != mine.job_id)
    longer = sa.or_(
        endpoint_turns.c.asked_at < mine.asked_at,
        sa.and_(endpoint_turns.c.asked_at == mine.asked_at, endpoint_turns.c.job_id < mine.job_id),
    )
    counted = sa.or_(endpoint_turns.c.run_id.isnot(None), sa.and_(endpoint_turns.c.due_at <= now, longer))
    statement = sa.select(sa.func.count()).select_from(endpoint_turns).where(others, counted)
    return int(conn.execute(statement).scalar_one())


def _of(endpoint: str, job_id: str) -> sa.Select[Any]:
    return sa.select(endpoint_turns).where(
        endpoint_turns.c.endpoint == endpoint, endpoint_turns.c.job_id == job_id
    )


def _update(endpoint: str, job_id: str) -> sa.Update:
    return sa.update(endpoint_turns).where(
        endpoint_turns.c.endpoint == endpoint, endpoint_turns.c.job_id == job_id
    )
