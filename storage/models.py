"""The tables, the same on SQLite and Postgres. Times are epoch seconds (float); JSON is JSON text or json.

The order of locks is: the job's row first, then everything else about the job. `runs` alone carries lease times,
so that heartbeats never touch a job's row.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Json = sa.JSON(none_as_null=True)

TERMINAL_STATES = ("succeeded", "failed", "aborted", "cancelled")
STATES = (
    "inheriting",
    "queued",
    "running",
    "compressing",
    "paused",
    "waiting_human",
    "waiting_subtasks",
    *TERMINAL_STATES,
)


def _quoted(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _counter(name: str, kind: type[sa.types.TypeEngine[int]] = sa.Integer) -> sa.Column[int]:
    return sa.Column(name, kind, nullable=False, server_default="0")


def _user_key(context: Any) -> str:
    return context.get_current_parameters().get("user") or ""


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    # Where it stands.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("reason_data", Json),
    sa.Column("resume_state", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("available_at", sa.Double, nullable=False),
    sa.Column("woken_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("run_id", sa.Text),
    sa.Column(
        "held_for", sa.Text, nullable=False, server_default=sa.text("''")
    ),  # the full limit it waits for: see storage.limits
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("model_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pause_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    # What it works on.
    sa.Column("task_type", sa.Text, nullable=False, server_default="local"),
    sa.Column("task_identifier", sa.Text),
    sa.Column("repository", sa.Text),
    sa.Column("user", sa.Text),
    sa.Column(
        "user_key", sa.Text, nullable=False, server_default=sa.text("''"), default=_user_key
    ),  # for turns: never null
    sa.Column("metadata", Json),
    sa.Column("model", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("inherits_from", sa.Text),
    sa.Column("parent_id", sa.Text, sa.ForeignKey("jobs.id", ondelete="CASCADE")),
    _counter("depth"),
    _counter("children_open"),
    _counter("children_total"),
    sa.Column(
        "cascade_pending", sa.Boolean, nullable=False, server_default=sa.false()
    ),  # children to be cancelled
    # Where its agent stands: the context is a pointer into the transcript.
    sa.Column("piece", sa.Text, nullable=False),
    sa.Column("movement", sa.Text, nullable=False),
    _counter("visit"),  # counts movement visits; 0 before the first
    _counter("visit_seq"),  # the visit's system message; 0 while the visit has not begun
    _counter("tail_seq"),  # first turn kept by the last compaction; 0 without one in this visit
    _counter("summary_seq"),  # the summary shown in this visit's head; 0 without one
    _counter("epoch"),  # counts changes of the context that break the request's prefix
    _counter("trim_seq"),  # results before it are shown shortened; 0: none are
    # Its size: believed, by the estimator alone, and as the endpoint last measured it (0: not since it changed).
    _counter("context_tokens"),
    _counter("context_estimate"),
    _counter("measured_tokens"),
    sa.Column("usage_ratio", sa.Double, nullable=False, server_default="1"),  # measured to estimated tokens
    sa.Column("context_marks", Json),  # what was done about its size: see worker.accounting
    sa.Column("shell_folder", sa.Text),  # where the next command begins; null: in the workspace itself
    sa.Column("pending_call", sa.Text),
    sa.Column("pending_question", Json),
    sa.Column("answer_due_at", sa.Double),  # then the question's default answers it; null: a person must
    # Counters: appending costs the same at any length because nothing is ever counted.
    _counter("event_seq"),
    _counter("inbox_total"),
    _counter("inbox_seen"),
    _counter("total_messages"),
    _counter("total_summaries"),
    _counter("total_tool_calls"),
    sa.Column("final_token_count", sa.Integer),
    sa.Column("final_message_count", sa.Integer),
    # Budgets and what was spent.
    _counter("steps"),
    _counter("prompt_tokens", sa.BigInteger),
    _counter("completion_tokens", sa.BigInteger),
    sa.Column("cost", sa.Double, nullable=False, server_default="0"),
    sa.Column("cost_known", sa.Boolean, nullable=False, server_default=sa.true()),  # every call had a price
    sa.Column("active_seconds", sa.Double, nullable=False, server_default="0"),
    sa.Column("max_steps", sa.Integer),
    sa.Column("max_tokens", sa.BigInteger),
    sa.Column("max_cost", sa.Double),
    sa.Column("max_seconds", sa.Double),
    # How it ended.
    sa.Column("result", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("summary_state", sa.Text, nullable=False, server_default="none"),
    sa.Column("summary_run_id", sa.Text),  # the fence of its final summary, as run_id is of the job
    sa.Column("summary_due_at", sa.Double),
    sa.Column("summary_woken_at", sa.Double, nullable=False, server_default="0"),
    _counter("summary_attempts"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("completed_at", sa.Double),
    sa.UniqueConstraint("owner", "idempotency_key"),
    sa.CheckConstraint(f"state IN ({_quoted(STATES)})", name="state_known"),
    sa.CheckConstraint(
        f"(state IN ({_quoted(TERMINAL_STATES)})) = (completed_at IS NOT NULL)", name="terminal_iff_completed"
    ),
    sa.CheckConstraint("state <> 'running' OR run_id IS NOT NULL", name="running_has_run"),
    sa.CheckConstraint("run_id IS NULL OR state IN ('running', 'compressing')", name="run_only_while_leased"),
    sa.CheckConstraint("summary_state IN ('none', 'pending', 'done', 'failed')", name="summary_state_known"),
    sa.CheckConstraint("inbox_seen <= inbox_total", name="inbox_seen_bounded"),
    sa.CheckConstraint("children_open >= 0", name="children_open_positive"),
)
# The claim's order, and in it the turns of owners and their users (see storage.choosing).
sa.Index(
    "ix_jobs_claim", jobs.c.state, jobs.c.held_for, jobs.c.priority.desc(), jobs.c.available_at, jobs.c.id
)
sa.Index("ix_jobs_turn", jobs.c.state, jobs.c.held_for, jobs.c.priority, jobs.c.owner, jobs.c.user_key, jobs.c.available_at, jobs.c.id, sqlite_where=jobs.c.completed_at.is_(None), postgresql_where=jobs.c.completed_at.is_(None))  # fmt: skip
sa.Index("ix_jobs_open", jobs.c.owner, sqlite_where=jobs.c.completed_at.is_(None), postgresql_where=jobs.c.completed_at.is_(None))  # fmt: skip
sa.Index("ix_jobs_owner", jobs.c.owner, jobs.c.id.desc())
# The list's: of one state, newest first, and counted.
sa.Index("ix_jobs_state", jobs.c.state, jobs.c.id.desc())
sa.Index("ix_jobs_owner_state", jobs.c.owner, jobs.c.state, jobs.c.id.desc())
sa.Index("ix_jobs_parent", jobs.c.parent_id, sqlite_where=jobs.c.parent_id.isnot(None), postgresql_where=jobs.c.parent_id.isnot(None))  # fmt: skip
sa.Index("ix_jobs_thread", jobs.c.owner, jobs.c.task_type, jobs.c.task_identifier, jobs.c.id, sqlite_where=jobs.c.task_identifier.isnot(None), postgresql_where=jobs.c.task_identifier.isnot(None))  # fmt: skip

sa.Index("ix_jobs_answer_due", jobs.c.answer_due_at, sqlite_where=jobs.c.answer_due_at.isnot(None), postgresql_where=jobs.c.answer_due_at.isnot(None))  # fmt: skip
sa.Index("ix_jobs_summary_due", jobs.c.summary_due_at, sqlite_where=jobs.c.summary_state == "pending", postgresql_where=jobs.c.summary_state == "pending")  # fmt: skip
sa.Index("ix_jobs_cascade_pending", jobs.c.id, sqlite_where=jobs.c.cascade_pending, postgresql_where=jobs.c.cascade_pending)  # fmt: skip


def _job_key(*, primary: bool = True) -> sa.Column[str]:
    return sa.Column(
        "job_id", sa.Text, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=primary, nullable=False
    )


# Large and read once a run: kept beside the job's row, which is rewritten at every checkpoint.
job_inputs = sa.Table(
    "job_inputs",
    metadata,
    _job_key(),
    sa.Column("instruction", sa.Text, nullable=False),
    sa.Column("piece", Json, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _job_key(primary=False),
    sa.Column("kind", sa.Text, nullable=False),  # agent | context | summary
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("claimed_at", sa.Double, nullable=False),
    sa.Column("lease_expires_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("outcome", sa.Text),
    _counter("steps"),
    # Its job's, as they were: whose turn it was.
    _counter("priority"),
    sa.Column("owner", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("user_key", sa.Text, nullable=False, server_default=sa.text("''")),
)
sa.Index("ix_runs_turn", runs.c.kind, runs.c.priority, runs.c.claimed_at)
sa.Index("ix_runs_owner_turn", runs.c.kind, runs.c.priority, runs.c.owner, runs.c.claimed_at)
sa.Index("ix_runs_job", runs.c.job_id, runs.c.claimed_at)
sa.Index("ix_runs_live", runs.c.lease_expires_at, sqlite_where=runs.c.ended_at.is_(None), postgresql_where=runs.c.ended_at.is_(None))  # fmt: skip

job_events = sa.Table(
    "job_events",
    metadata,
    _job_key(),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("from_state", sa.Text),
    sa.Column("to_state", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("data", Json),
)

comments = sa.Table(
    "comments",
    metadata,
    _job_key(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column(
        "kind", sa.Text, nullable=False
    ),  # comment | question | result: the last two are the agent's own
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("answers_call", sa.Text),  # the parked call that this comment answers
    sa.Column(
        "seen_seq", sa.Integer
    ),  # of the message that it was shown with; null: not yet, or nobody noted
    sa.Column(
        "seen_step", sa.Integer
    ),  # the step at which it was delivered; null: it is unread, 0: nobody noted
    sa.CheckConstraint("kind IN ('comment', 'question', 'result')", name="kind_known"),
)

messages = sa.Table(
    "messages",
    metadata,
    _job_key(),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("visit", sa.Integer, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("content", sa.Text),
    sa.Column("tool_calls", Json),
    sa.Column("tool_call_id", sa.Text),
    sa.Column("tool_name", sa.Text),
    sa.Column("is_error", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("extra", Json),
    sa.Column("tokens", sa.Integer, nullable=False, server_default="0"),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.CheckConstraint("(role = 'tool') = (tool_call_id IS NOT NULL)", name="tool_answers_call"),
    sa.CheckConstraint("role IN ('system', 'user', 'assistant', 'tool')", name="role_known"),
)

tool_calls = sa.Table(
    "tool_calls",
    metadata,
    _job_key(),
    sa.Column("call_id", sa.Text, primary_key=True),
    sa.Column("message_seq", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # open | parked | done
    sa.Column("result_seq", sa.Integer),
    sa.Column("is_error", sa.Boolean),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.CheckConstraint("state IN ('open', 'parked', 'done')", name="state_known"),
    sa.CheckConstraint("(state = 'done') = (result_seq IS NOT NULL)", name="done_has_result"),
    sa.UniqueConstraint("job_id", "message_seq", "position"),
)
# Todos and checklists are replayed from their calls: found without reading the others, however many there are.
sa.Index(
    "ix_tool_calls_name", *(tool_calls.c[name] for name in ("job_id", "name", "message_seq", "position"))
)

# Calls of hooks that are still to be made: none is ever written where no hook is configured.
hook_calls = sa.Table(
    "hook_calls",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _job_key(primary=False),
    sa.Column("name", sa.Text, nullable=False),  # of the hook
    sa.Column("event", Json, nullable=False),
    sa.Column("free_at", sa.Double, nullable=False),  # from then on any process may make it: its caller died
)
sa.Index("ix_hook_calls_job", hook_calls.c.job_id)
sa.Index("ix_hook_calls_free", hook_calls.c.free_at)

# What stands for rows that are no longer shown, and what a job left for those that follow it.
summaries = sa.Table(
    "summaries",
    metadata,
    _job_key(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # counts the job's summaries
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("visit", sa.Integer, nullable=False),
    sa.Column("message_seq", sa.Integer),  # of its own message in the transcript; null for a final one
    sa.Column("first_seq", sa.Integer, nullable=False),  # the rows that it is newly about
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("message_count", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("tokens_before", sa.Integer, nullable=False),  # of the context; 0 for a final one
    sa.Column("tokens_after", sa.Integer, nullable=False),
    _counter("prompt_tokens", sa.BigInteger),
    _counter("completion_tokens", sa.BigInteger),
    sa.Column("cost", sa.Double, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.CheckConstraint("kind IN ('compaction', 'final')", name="kind_known"),
)

plans = sa.Table(
    "plans",
    metadata,
    _job_key(),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),  # of the call's result
    sa.Column("plan_type", sa.Text, nullable=False),
    sa.Column("plan_content", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

# Jobs that somebody looks at now: their workers tell what a reply says while it is written.
watches = sa.Table("watches", metadata, _job_key(), sa.Column("until", sa.Double, nullable=False))

live_replies = sa.Table(
    "live_replies",
    metadata,
    _job_key(),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),  # of the message that it becomes
    sa.Column("data", Json, nullable=False),
    sa.Column("told_at", sa.Double, nullable=False),
)

# What a model was shown: the bytes as they are sent, so that every later request has the same prefix.
images = sa.Table(
    "images",
    metadata,
    _job_key(),
    sa.Column("sha", sa.Text, primary_key=True),
    sa.Column("media_type", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),  # of data
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("queues", Json, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("sandbox", sa.Text, nullable=False),
    sa.Column("tools", Json, nullable=False),
    sa.Column("mcp", Json),  # names of the MCP servers that it offers
    sa.Column("problems", Json),  # what of its set-up does not work, in lines
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("seen_at", sa.Double, nullable=False),
    sa.Column("stopped_at", sa.Double),
    sa.Column("drain_requested_at", sa.Double),  # it takes no more jobs, and leaves when it has none
)

# One row: programs older than this revision must not write here any more. See docs/adr/0004-expand-then-contract.md.
schema_floor = sa.Table(
    "schema_floor",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("oldest_program", sa.Text, nullable=False),
    sa.CheckConstraint("id = 1", name="one_row"),
)

cooldowns = sa.Table(
    "cooldowns",
    metadata,
    sa.Column("endpoint", sa.Text, primary_key=True),  # base URL and model
    sa.Column("until", sa.Double, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

# What was learned of models; `endpoint` is base URL and model, as in cooldowns.
model_facts = sa.Table(
    "model_facts",
    metadata,
    sa.Column("endpoint", sa.Text, primary_key=True),
    sa.Column("facts", Json, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)

# Limited endpoints only: a job's turn to call, and the run that holds its place while it does.
endpoint_turns = sa.Table(
    "endpoint_turns",
    metadata,
    sa.Column("endpoint", sa.Text, primary_key=True),
    _job_key(),
    sa.Column("run_id", sa.Text),  # null: it waits for its turn
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),  # by the limits of a minute
    sa.Column("seen_at", sa.Double, nullable=False),
)
sa.Index("ix_endpoint_turns_job_id", endpoint_turns.c.job_id)

# When the next call may begin so that the limits of a minute hold.
endpoint_rates = sa.Table(
    "endpoint_rates",
    metadata,
    sa.Column("endpoint", sa.Text, primary_key=True),
    sa.Column("requests_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("tokens_at", sa.Double, nullable=False, server_default="0"),
)

# What workers count, added up over all of them; `labels` as JSON, in the order of the measure's.
measures = sa.Table(
    "measures",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("labels", sa.Text, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
)

locks = sa.Table(
    "locks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

# Of a token only its hash is kept: who reads the database cannot use it.
api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),  # null: never
    sa.Column("revoked_at", sa.Double),
    sa.UniqueConstraint("hash"),
)

# How a browser gets in: a code that is used once, then a session. Of both only the hashes are kept.
login_codes = sa.Table(
    "login_codes",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("seen_at", sa.Double, nullable=False),  # to within a few minutes
    sa.Column("expires_at", sa.Double, nullable=False),  # however much it is used
    sa.Column("revoked_at", sa.Double),
    sa.UniqueConstraint("hash"),
)

# Who did what. Without foreign keys: it outlives the jobs that it tells of. Triggers refuse changes (see the migration).
audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("via", sa.Text, nullable=False),  # cli | api | page | worker
    sa.Column("credential", sa.Text),  # the id of a token or session
    sa.Column("address", sa.Text),
    sa.Column("job_id", sa.Text),
    sa.Column("data", Json),
)
sa.Index("ix_audit_log_job", audit_log.c.job_id, audit_log.c.id, sqlite_where=audit_log.c.job_id.isnot(None), postgresql_where=audit_log.c.job_id.isnot(None))  # fmt: skip
