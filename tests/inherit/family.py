"""Jobs about the same thing, one after the other, and their summaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobs.states import State
from storage.engine import wall_clock
from storage.models import jobs, runs, summaries
from storage.records import Summary
from storage.summaries import list_summaries
from tests.agent.stage import COMPLETE, Line, Stage
from tests.strict_endpoint import ChatRequest, Reply
from worker.final_summary import run_summary

KEY = {"task_type": "ticket", "task_identifier": "42", "repository": "demo", "user": "ann"}
SUMMARY = Reply("The stars were counted: 42. Left to do: the moons.")


def ended(stage: Stage, *lines: Line, **submitted: Any) -> str:
    """A job about the thing, which has ended; its summary is still to be written."""
    job_id = stage.play(*(lines or (COMPLETE,)), **(KEY | submitted))
    assert stage.row(job_id)["summary_state"] == "pending"
    return job_id


def summarised(stage: Stage, *lines: Line, **submitted: Any) -> str:
    """A job about the thing, with its summary."""
    job_id = ended(stage, **submitted)
    write_summary(stage, *(lines or (SUMMARY,)))
    assert stage.row(job_id)["summary_state"] == "done"
    return job_id


def write_summary(stage: Stage, *lines: Line) -> str | None:
    """Lets a worker of the context queue write the summary that is due."""
    stage.tell(*(lines or (SUMMARY,)))
    return run_summary(stage.process, None)


def follow(stage: Stage, **submitted: Any) -> str:
    """A further job about the thing."""
    return stage.submit(**(KEY | submitted))


def head(request: ChatRequest) -> str:
    """The user's first message, in which a movement begins."""
    return str(request.messages[1]["content"])


def first_head(stage: Stage, job_id: str) -> str:
    """Runs the job to its end and returns what its first request began with."""
    heads: list[str] = []

    def end(request: ChatRequest) -> Reply:
        heads.append(head(request))
        return COMPLETE

    stage.tell(end)
    assert stage.run() == job_id
    assert stage.job(job_id).state == State.SUCCEEDED
    return heads[0]


def summaries_of(stage: Stage, job_id: str) -> Sequence[Summary]:
    return list_summaries(stage.doors.db, job_id)


def pass_time(stage: Stage, job_id: str, seconds: float) -> None:
    """Lets the job have been submitted so much earlier."""
    with stage.doors.db.write() as conn:
        conn.execute(
            sa.update(jobs).where(jobs.c.id == job_id).values(created_at=jobs.c.created_at - seconds)
        )


def make_summary_due(stage: Stage, job_id: str) -> None:
    """Lets the time of a backoff pass."""
    with stage.doors.db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(summary_due_at=wall_clock()))


def summary_runs(stage: Stage, job_id: str) -> list[str | None]:
    """How each run ended that was to write the job's summary; None: it has not."""
    statement = sa.select(runs.c.outcome).where(runs.c.job_id == job_id, runs.c.kind == "summary")
    with stage.doors.db.read() as conn:
        return list(conn.execute(statement.order_by(runs.c.claimed_at)).scalars())


def count_summaries(stage: Stage, job_id: str) -> int:
    with stage.doors.db.read() as conn:
        found = sa.select(sa.func.count()).select_from(summaries).where(summaries.c.job_id == job_id)
        return conn.execute(found).scalar_one()
