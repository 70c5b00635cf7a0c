"""Jobs, runs, transcripts

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "cooldowns",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", name=op.f("pk_cooldowns")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("reason_data", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("resume_state", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("woken_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("model_failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pause_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("task_type", sa.Text(), server_default="local", nullable=False),
        sa.Column("task_identifier", sa.Text(), nullable=True),
        sa.Column("repository", sa.Text(), nullable=True),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("inherits_from", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("depth", sa.Integer(), server_default="0", nullable=False),
        sa.Column("children_open", sa.Integer(), server_default="0", nullable=False),
        sa.Column("piece", sa.Text(), nullable=False),
        sa.Column("movement", sa.Text(), nullable=False),
        sa.Column("visit", sa.Integer(), server_default="0", nullable=False),
        sa.Column("visit_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tail_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("summary_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("context_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pending_call", sa.Text(), nullable=True),
        sa.Column("pending_question", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("event_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("inbox_total", sa.Integer(), server_default="0", nullable=False),
        sa.Column("inbox_seen", sa.Integer(), server_default="0", nullable=False),
        sa.Column("total_messages", sa.Integer(), server_default="0", nullable=False),
        sa.Column("total_summaries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("total_tool_calls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("final_token_count", sa.Integer(), nullable=True),
        sa.Column("final_message_count", sa.Integer(), nullable=True),
        sa.Column("steps", sa.Integer(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost", sa.Double(), server_default="0", nullable=False),
        sa.Column("active_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("max_steps", sa.Integer(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("max_cost", sa.Double(), nullable=True),
        sa.Column("max_seconds", sa.Double(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("summary_state", sa.Text(), server_default="none", nullable=False),
        sa.Column("summary_run_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("completed_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'aborted', 'cancelled')) = (completed_at IS NOT NULL)",
            name=op.f("ck_jobs_terminal_iff_completed"),
        ),
        sa.CheckConstraint(
            "run_id IS NULL OR state IN ('running', 'compressing')",
            name=op.f("ck_jobs_run_only_while_leased"),
        ),
        sa.CheckConstraint("state <> 'running' OR run_id IS NOT NULL", name=op.f("ck_jobs_running_has_run")),
        sa.CheckConstraint(
            "state IN ('inheriting', 'queued', 'running', 'compressing', 'paused', 'waiting_human', 'waiting_subtasks', 'succeeded', 'failed', 'aborted', 'cancelled')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.CheckConstraint(
            "summary_state IN ('none', 'pending', 'done', 'failed')", name=op.f("ck_jobs_summary_state_known")
        ),
        sa.CheckConstraint("children_open >= 0", name=op.f("ck_jobs_children_open_positive")),
        sa.CheckConstraint("inbox_seen <= inbox_total", name=op.f("ck_jobs_inbox_seen_bounded")),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["jobs.id"], name=op.f("fk_jobs_parent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("owner", "idempotency_key", name=op.f("uq_jobs_owner_idempotency_key")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(
            "ix_jobs_claim", ["state", sa.literal_column("priority DESC"), "available_at", "id"], unique=False
        )
        batch_op.create_index("ix_jobs_owner", ["owner", sa.literal_column("id DESC")], unique=False)
        batch_op.create_index(
            "ix_jobs_parent",
            ["parent_id"],
            unique=False,
            sqlite_where=sa.text("parent_id IS NOT NULL"),
            postgresql_where=sa.text("parent_id IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_jobs_thread",
            ["owner", "task_type", "task_identifier"],
            unique=False,
            sqlite_where=sa.text("task_identifier IS NOT NULL"),
            postgresql_where=sa.text("task_identifier IS NOT NULL"),
        )

    op.create_table(
        "locks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_locks")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("queues", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("sandbox", sa.Text(), nullable=False),
        sa.Column("tools", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("stopped_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "comments",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("answers_call", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('comment', 'question', 'result')", name=op.f("ck_comments_kind_known")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_comments_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_comments")),
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_job_events")),
    )
    op.create_table(
        "job_inputs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("instruction", sa.Text(), nullable=False),
        sa.Column("piece", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_inputs_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_inputs")),
    )
    op.create_table(
        "messages",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=True),
        sa.Column("tool_calls", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("tool_name", sa.Text(), nullable=True),
        sa.Column("is_error", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("extra", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "(role = 'tool') = (tool_call_id IS NOT NULL)", name=op.f("ck_messages_tool_answers_call")
        ),
        sa.CheckConstraint(
            "role IN ('system', 'user', 'assistant', 'tool')", name=op.f("ck_messages_role_known")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_messages_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_messages")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("lease_expires_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("steps", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_runs_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index("ix_runs_job", ["job_id", "claimed_at"], unique=False)
        batch_op.create_index(
            "ix_runs_live",
            ["lease_expires_at"],
            unique=False,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )

    op.create_table(
        "tool_calls",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("message_seq", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result_seq", sa.Integer(), nullable=True),
        sa.Column("is_error", sa.Boolean(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "(state = 'done') = (result_seq IS NOT NULL)", name=op.f("ck_tool_calls_done_has_result")
        ),
        sa.CheckConstraint("state IN ('open', 'parked', 'done')", name=op.f("ck_tool_calls_state_known")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_tool_calls_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "call_id", name=op.f("pk_tool_calls")),
        sa.UniqueConstraint(
            "job_id", "message_seq", "position", name=op.f("uq_tool_calls_job_id_message_seq_position")
        ),
    )


def downgrade() -> None:

    op.drop_table("tool_calls")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_runs_live",
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )
        batch_op.drop_index("ix_runs_job")

    op.drop_table("runs")
    op.drop_table("messages")
    op.drop_table("job_inputs")
    op.drop_table("job_events")
    op.drop_table("comments")
    op.drop_table("workers")
    op.drop_table("locks")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_jobs_thread",
            sqlite_where=sa.text("task_identifier IS NOT NULL"),
            postgresql_where=sa.text("task_identifier IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_jobs_parent",
            sqlite_where=sa.text("parent_id IS NOT NULL"),
            postgresql_where=sa.text("parent_id IS NOT NULL"),
        )
        batch_op.drop_index("ix_jobs_owner")
        batch_op.drop_index("ix_jobs_claim")

    op.drop_table("jobs")
    op.drop_table("cooldowns")
