"""`sostenuto audit`: who did what."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import opened
from jobs.cli.text import to_json


def audit(  # noqa: PLR0917  Typer passes them by name
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only these, such as login or denied.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only what this one did.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only what concerns it.")] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", min=1, help="Only records before this one.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most so many.")
    ] = 50,
    tool_calls: Annotated[
        bool, typer.Option("--tool-calls", help="Of --job: its tool calls, by hash and outcome.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show the audit log. Newest first: logins, tokens, submits, control, files, denials."""
    from jobs.audit import call_record, record_dict
    from jobs.errors import UsageError
    from jobs.views import find_job_id
    from storage.audit import list_records
    from storage.observing import list_tool_calls

    if tool_calls and job is None:
        raise UsageError("--tool-calls needs a job", hint="name it with --job")
    with opened() as installation:
        job_id = None if job is None else find_job_id(installation, job, None)
        if tool_calls and job_id is not None:
            calls = [call_record(call) for call in list_tool_calls(installation.db, job_id, (0, 0), limit)]
            print(to_json({"tool_calls": calls}))
            return
        rows = list_records(installation.db, limit, before, kind=kind, actor=actor, job_id=job_id)
    if json:
        print(to_json({"records": [record_dict(row) for row in rows]}))
    elif rows:
        render.table(
            ["ID", "WHEN", "WHAT", "WHO", "VIA", "JOB", "MORE"],
            [
                [
                    str(row.id),
                    render.moment(row.at),
                    row.kind,
                    row.actor,
                    row.via,
                    "" if row.job_id is None else render.short(row.job_id),
                    " ".join(f"{name}={value}" for name, value in (row.data or {}).items()),
                ]
                for row in rows
            ],
        )
    else:
        render.note("no records")
