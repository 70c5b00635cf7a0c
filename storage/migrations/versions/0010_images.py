"""Images that models are shown; where a job's next command begins

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "images",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_images_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "sha", name=op.f("pk_images")),
    )
    op.add_column("jobs", sa.Column("shell_folder", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "shell_folder")
    op.drop_table("images")
