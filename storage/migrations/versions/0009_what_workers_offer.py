"""MCP servers that a worker offers, and what of its set-up does not work

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("mcp", "problems"):
        op.add_column("workers", sa.Column(name, sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("workers") as table:
        table.drop_column("problems")
        table.drop_column("mcp")
