"""Subtasks: how many a job has begun, and which cancelled jobs have children still to be cancelled

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("children_total", sa.Integer(), server_default="0", nullable=False))
    op.add_column(
        "jobs", sa.Column("cascade_pending", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.create_index(
        "ix_jobs_cascade_pending",
        "jobs",
        ["id"],
        sqlite_where=sa.text("cascade_pending"),
        postgresql_where=sa.text("cascade_pending"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_cascade_pending", table_name="jobs")
    op.drop_column("jobs", "cascade_pending")
    op.drop_column("jobs", "children_total")
