"""Final summaries that are owed, and the thread of a job in the order of its jobs

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_KEYED = sa.text("task_identifier IS NOT NULL")
_PENDING = sa.text("summary_state = 'pending'")
_THREAD = ["owner", "task_type", "task_identifier"]


def upgrade() -> None:
    op.add_column("jobs", sa.Column("summary_due_at", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("summary_woken_at", sa.Double(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("summary_attempts", sa.Integer(), server_default="0", nullable=False))
    op.create_index(
        "ix_jobs_summary_due", "jobs", ["summary_due_at"], sqlite_where=_PENDING, postgresql_where=_PENDING
    )
    op.drop_index("ix_jobs_thread", table_name="jobs")
    op.create_index("ix_jobs_thread", "jobs", [*_THREAD, "id"], sqlite_where=_KEYED, postgresql_where=_KEYED)


def downgrade() -> None:
    op.drop_index("ix_jobs_thread", table_name="jobs")
    op.create_index("ix_jobs_thread", "jobs", _THREAD, sqlite_where=_KEYED, postgresql_where=_KEYED)
    op.drop_index("ix_jobs_summary_due", table_name="jobs")
    op.drop_column("jobs", "summary_attempts")
    op.drop_column("jobs", "summary_woken_at")
    op.drop_column("jobs", "summary_due_at")
