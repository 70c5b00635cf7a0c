"""Turns of owners and users, jobs held by a limit

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_OPEN = sa.text("completed_at IS NULL")


def upgrade() -> None:
    for table, name in (("jobs", "held_for"), ("jobs", "user_key"), ("runs", "owner"), ("runs", "user_key")):
        op.add_column(table, sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''")))
    op.add_column("runs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.execute("""UPDATE jobs SET user_key = "user" WHERE "user" IS NOT NULL""")
    op.drop_index("ix_jobs_claim", table_name="jobs")
    op.create_index(
        "ix_jobs_claim", "jobs", ["state", "held_for", sa.text("priority DESC"), "available_at", "id"]
    )
    op.create_index(
        "ix_jobs_turn",
        "jobs",
        ["state", "held_for", "priority", "owner", "user_key", "available_at", "id"],
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
    op.create_index("ix_jobs_open", "jobs", ["owner"], sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.create_index("ix_runs_turn", "runs", ["kind", "priority", "claimed_at"])
    op.create_index("ix_runs_owner_turn", "runs", ["kind", "priority", "owner", "claimed_at"])


def downgrade() -> None:
    for name in ("ix_runs_owner_turn", "ix_runs_turn"):
        op.drop_index(name, table_name="runs")
    for name in ("ix_jobs_open", "ix_jobs_turn", "ix_jobs_claim"):
        op.drop_index(name, table_name="jobs")
    for table, name in (
        ("runs", "priority"), ("runs", "user_key"), ("runs", "owner"), ("jobs", "user_key"), ("jobs", "held_for")
    ):  # fmt: skip
        op.drop_column(table, name)
    op.create_index("ix_jobs_claim", "jobs", ["state", sa.text("priority DESC"), "available_at", "id"])
