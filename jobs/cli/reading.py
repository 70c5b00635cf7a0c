"""`sostenuto list`, `show`, `transcript` and `summaries`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import opened, opened_job
from jobs.cli.text import to_json
from jobs.errors import UsageError, did_you_mean
from jobs.states import State

_PAGE = 500  # transcript rows held in memory at a time
_CUT = 2000  # characters of a message that are shown without --full


def list_jobs(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only these states; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most N jobs.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="JOB", help="Go on after the last job of a page.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="JOB", help="Only the subtasks of this job.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List jobs, newest first. In a pipe: tab-separated id, state, time of creation, steps, title."""
    from jobs import views

    known = [str(name) for name in State]
    for name in state or []:
        if name not in known:
            hint = did_you_mean(name, known) or f"allowed are: {', '.join(known)}"
            raise UsageError(f"there is no state {name!r}", hint=hint)
    with opened() as installation:
        owner = installation.settings.owner
        last = views.find_job_id(installation, before, owner) if before else None
        above = views.find_job_id(installation, parent, owner) if parent else None
        found = views.list_jobs(installation, owner, state, limit + 1, last, parent=above)
    jobs, more = found[:limit], len(found) > limit
    if json:
        print(to_json({"jobs": [job.as_dict() for job in jobs], "next": jobs[-1].id if more else None}))
    elif not render.on_terminal():
        render.table(
            [], [[job.id, job.state, views.iso(job.created_at), str(job.steps), job.title] for job in jobs]
        )
    elif jobs:
        render.table(["JOB", "STATE", "AGE", "STEPS", "TITLE"], [render.job_line(job) for job in jobs])
        if more:
            render.line((f"there are more: --before {render.short(jobs[-1].id)}", "dim"))
    else:
        render.line(('no jobs; submit one with: sostenuto submit "…"', "dim"))


def show(job: options.JobId, json: options.Json = False) -> None:
    """Show one job. Its state and why, what comes next, its subtasks, its question, result or error."""
    from jobs import views

    with opened_job(job) as (installation, job_id):
        view = views.get_job(installation, job_id, installation.settings.owner)
        children = views.list_children(installation, job_id) if view.children_total else []
    if json:
        told = [{"id": child.id, "state": child.state, "title": child.title} for child in children]
        print(to_json(view.as_dict() | {"children": told}))
    else:
        render.job_page(view, children)


def transcript(
    job: options.JobId,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only messages after this one.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most N messages.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help=f"Long messages whole, not cut at {_CUT:,} characters.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Print a job's messages. Everything that was sent to the model, and what it did."""
    from dataclasses import asdict

    from jobs.views import list_messages, summarised_by

    rows = []
    with opened_job(job) as (installation, job_id):
        left = limit
        while left is None or left > 0:
            page = list_messages(installation, job_id, after, min(_PAGE, left or _PAGE))
            by = summarised_by(installation, job_id, page)
            for message in page:
                number = by.get(message.seq)
                if json:
                    rows.append(asdict(message) | {"summarised_by": number})
                else:
                    render.whole_message(message, most=None if full else _CUT, summarised_by=number)
            if len(page) < min(_PAGE, left or _PAGE):
                break
            after = page[-1].seq
            left = None if left is None else left - len(page)
    if json:
        print(to_json({"messages": rows}))


def summaries(job: options.JobId, json: options.Json = False) -> None:
    """Print a job's summaries. Those of its context, and the final one that later jobs begin with."""
    from jobs.views import list_summaries, summary_dict

    with opened_job(job) as (installation, job_id):
        found = list_summaries(installation, job_id)
    if json:
        print(to_json({"summaries": [summary_dict(summary) for summary in found]}))
        return
    for summary in found:
        spent = f"{summary.tokens:,} tokens, cost {summary.cost:g}"
        rows = f"messages {summary.first_seq} to {summary.last_seq}"
        render.line((f"── {summary.number} {summary.kind}: {rows}, {spent}", "bold"))
        render.line(summary.content.rstrip())
        render.line()
    if not found:
        render.note("no summaries")
