"""Workers that are asked to leave, and which older programs may work on a newer database

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("drain_requested_at", sa.Double(), nullable=True))
    floor = op.create_table(
        "schema_floor",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("oldest_program", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schema_floor")),
        sa.CheckConstraint("id = 1", name=op.f("ck_schema_floor_one_row")),
    )
    op.bulk_insert(floor, [{"id": 1, "oldest_program": revision}])


def downgrade() -> None:
    op.drop_table("schema_floor")
    with op.batch_alter_table("workers") as table:
        table.drop_column("drain_requested_at")
