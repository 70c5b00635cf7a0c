"""Deadlines of questions, costs that are not known, calls of hooks that are still to be made

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("answer_due_at", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("cost_known", sa.Boolean(), server_default=sa.true(), nullable=False))
    op.create_index(
        "ix_jobs_answer_due",
        "jobs",
        ["answer_due_at"],
        sqlite_where=sa.text("answer_due_at IS NOT NULL"),
        postgresql_where=sa.text("answer_due_at IS NOT NULL"),
    )
    op.create_table(
        "hook_calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("event", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("free_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_hook_calls_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_calls")),
    )
    op.create_index("ix_hook_calls_job", "hook_calls", ["job_id"])
    op.create_index("ix_hook_calls_free", "hook_calls", ["free_at"])


def downgrade() -> None:
    op.drop_table("hook_calls")
    op.drop_index("ix_jobs_answer_due", table_name="jobs")
    op.drop_column("jobs", "cost_known")
    op.drop_column("jobs", "answer_due_at")
