"""The planning history of jobs: what their agents recorded with the `plan` tool."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.models import plans
from storage.records import Message, NewPlan, Plan
from storage.text import clean_text


def add_plan(conn: Connection, job_id: str, result: Message, plan: NewPlan) -> None:
    """Records a plan in the transaction that commits its call's result."""
    conn.execute(
        sa.insert(plans).values(
            job_id=job_id,
            seq=result.seq,
            plan_type=clean_text(plan.plan_type),
            plan_content=clean_text(plan.plan_content),
            created_at=result.created_at,
        )
    )


def list_plans(db: Database, job_id: str, after: int = 0, limit: int | None = None) -> list[Plan]:
    """Plans with seq > `after`, oldest first."""
    statement = sa.select(plans).where(plans.c.job_id == job_id, plans.c.seq > after)
    with db.read() as conn:
        rows = conn.execute(statement.order_by(plans.c.seq).limit(limit))
        return [Plan(**row) for row in rows.mappings()]
