"""Summaries, and the size of a job's context

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_COUNTERS = ("trim_seq", "context_estimate", "measured_tokens")


def upgrade() -> None:
    for name in _COUNTERS:
        op.add_column("jobs", sa.Column(name, sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("usage_ratio", sa.Double(), server_default="1", nullable=False))
    op.add_column("jobs", sa.Column("context_marks", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "summaries",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("message_seq", sa.Integer(), nullable=True),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("tokens_before", sa.Integer(), nullable=False),
        sa.Column("tokens_after", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost", sa.Double(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("kind IN ('compaction', 'final')", name=op.f("ck_summaries_kind_known")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_summaries_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_summaries")),
    )


def downgrade() -> None:
    op.drop_table("summaries")
    for name in ("context_marks", "usage_ratio", *reversed(_COUNTERS)):
        op.drop_column("jobs", name)
