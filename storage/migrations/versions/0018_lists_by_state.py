"""Lists by state: counted, and paged, without reading the jobs

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_jobs_state", "jobs", ["state", sa.text("id DESC")])
    op.create_index("ix_jobs_owner_state", "jobs", ["owner", "state", sa.text("id DESC")])


def downgrade() -> None:
    op.drop_index("ix_jobs_owner_state", table_name="jobs")
    op.drop_index("ix_jobs_state", table_name="jobs")
