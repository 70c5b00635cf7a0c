"""What is learned of models; turns at limited endpoints

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_facts",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", name=op.f("pk_model_facts")),
    )
    op.create_table(
        "endpoint_turns",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_endpoint_turns_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("endpoint", "job_id", name=op.f("pk_endpoint_turns")),
    )
    op.create_index("ix_endpoint_turns_job_id", "endpoint_turns", ["job_id"])
    op.create_table(
        "endpoint_rates",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("requests_at", sa.Double(), nullable=False, server_default="0"),
        sa.Column("tokens_at", sa.Double(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("endpoint", name=op.f("pk_endpoint_rates")),
    )


def downgrade() -> None:
    op.drop_table("endpoint_rates")
    op.drop_index("ix_endpoint_turns_job_id", table_name="endpoint_turns")
    op.drop_table("endpoint_turns")
    op.drop_table("model_facts")
