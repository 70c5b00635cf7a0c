"""`sostenuto exchange`: what was sent to the model, and what came back."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any

import typer

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.text import to_json


def exchange(
    job: options.JobId,
    step: Annotated[
        int | None, typer.Argument(metavar="STEP", min=1, help="Show the exchange of this step, whole.")
    ] = None,
    seq: Annotated[
        int | None, typer.Option("--seq", metavar="N", min=1, help="Show the exchange of this number.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show what was sent to the model and what came back. Kept for a few days, secrets masked; without STEP, a list."""
    from jobs.exchanges import find_step, list_exchanges, read_exchange

    with opened_job(job) as (installation, job_id):
        data_dir = installation.settings.data_dir
        if step is None and seq is None:
            found = list_exchanges(data_dir, job_id)
            print(to_json({"exchanges": found})) if json else _list(found)
            return
        number = seq if seq is not None else find_step(data_dir, job_id, step or 0)
        whole = read_exchange(data_dir, job_id, number)
    print(to_json(whole)) if json else _show(whole)


def _list(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            str(one["seq"]), str(one["step"] or ""), render.moment(one["at"]), str(one["model"]), str(one["outcome"]),
            f"{one['seconds']} s", str(one["error"] or ""),
        ]
        for one in found
    ]  # fmt: skip
    render.table(["SEQ", "STEP", "AT", "MODEL", "OUTCOME", "TOOK", "ERROR"], rows)
    if not found:
        render.note("no exchange is kept")


def _show(whole: dict[str, Any]) -> None:
    render.line((f"exchange {whole['seq']}, step {whole['step']}, {render.moment(whole['at'])}", "bold"))
    render.line(f"{whole['model']} at {whole['endpoint']}: {whole['outcome']} after {whole['seconds']} s")
    if whole["error"]:
        render.line(str(whole["error"]))
    for heading, text in (
        ("request", json_module.dumps(whole["request"], ensure_ascii=False, indent=2)),
        (f"response, HTTP {whole['status']}", str(whole["response"] or "").rstrip()),
    ):
        render.line()
        render.line((heading, "bold"))
        render.line(text)
    if whole["incomplete"]:
        render.line(("the beginning of this request is no longer kept", "dim"))
