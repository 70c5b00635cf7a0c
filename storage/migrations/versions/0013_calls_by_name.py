"""Calls by their tool: what is replayed of them is found without reading the others

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_tool_calls_name", "tool_calls", ["job_id", "name", "message_seq", "position"])


def downgrade() -> None:
    op.drop_index("ix_tool_calls_name", table_name="tool_calls")
