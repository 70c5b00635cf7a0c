"""How large a job's context is when it comes to rest: taken by whatever statement ends or pauses it, whoever that is."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from storage.models import TERMINAL_STATES, jobs, messages

AT_REST = ("paused", *TERMINAL_STATES)


def final_size(
    tokens: sa.ColumnElement[Any] = jobs.c.context_tokens, appended: sa.ColumnElement[Any] | int = 0
) -> dict[str, Any]:
    """The columns of a job that ends or is paused: its context's tokens, and its messages as `load_view` reads them.

    `tokens`: what the same statement sets the size to. `appended`: messages that are inserted after it. Reads the rows
    of the present movement: once a rest, not once a step.
    """
    in_view = sa.or_(
        messages.c.kind == "system",
        messages.c.kind == "head",
        messages.c.seq >= jobs.c.tail_seq,
        messages.c.seq == jobs.c.summary_seq,
    )
    counted = (
        sa.select(sa.func.count())
        .where(
            messages.c.job_id == jobs.c.id, jobs.c.visit_seq > 0, messages.c.seq >= jobs.c.visit_seq, in_view
        )
        .correlate(jobs)
        .scalar_subquery()
    )
    return {"final_token_count": tokens, "final_message_count": counted + appended}
