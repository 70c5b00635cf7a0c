"""Replies while they are written, who watches a job, and which step a comment was delivered at

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "watches",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_watches_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_watches")),
    )
    op.create_table(
        "live_replies",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("told_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_live_replies_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_live_replies")),
    )
    op.add_column("comments", sa.Column("seen_seq", sa.Integer(), nullable=True))
    op.add_column("comments", sa.Column("seen_step", sa.Integer(), nullable=True))
    # Of those that were shown before, nobody noted when.
    op.execute(
        "UPDATE comments SET seen_step = 0 WHERE number <= "
        "(SELECT inbox_seen FROM jobs WHERE jobs.id = comments.job_id)"
    )


def downgrade() -> None:
    op.drop_column("comments", "seen_step")
    op.drop_column("comments", "seen_seq")
    op.drop_table("live_replies")
    op.drop_table("watches")
