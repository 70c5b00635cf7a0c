"""The audit log: records of a month and more may be removed, younger ones by nobody

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_MONTH = 30 * 86_400
_YOUNG = {
    "sqlite": f"OLD.at > (julianday('now') - 2440587.5) * 86400 - {_MONTH}",
    "postgresql": f"OLD.at > extract(epoch FROM clock_timestamp()) - {_MONTH}",
}
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
_FUNCTION = "EXECUTE FUNCTION audit_log_append_only()"


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    if dialect == "sqlite":
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(
            f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log WHEN {_YOUNG[dialect]} {_REFUSE}"
        )
        return
    op.execute("DROP TRIGGER audit_log_append_only ON audit_log")
    op.execute(
        "CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR TRUNCATE ON audit_log "
        f"FOR EACH STATEMENT {_FUNCTION}"
    )
    op.execute(
        "CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log "
        f"FOR EACH ROW WHEN ({_YOUNG[dialect]}) {_FUNCTION}"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log {_REFUSE}")
        return
    op.execute("DROP TRIGGER audit_log_no_delete ON audit_log")
    op.execute("DROP TRIGGER audit_log_append_only ON audit_log")
    op.execute(
        "CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
        f"FOR EACH STATEMENT {_FUNCTION}"
    )
