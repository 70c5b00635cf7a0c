"""`sostenuto comment`, `reply`, `pause`, `resume`, `cancel` and `retry`: what people do to a job."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.submitting import absolute_model, budget_of
from jobs.cli.text import to_json

if TYPE_CHECKING:
    from jobs.views import JobView
    from storage.records import Comment

_Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="The words; - reads them from stdin.", show_default=False)
]


def comment(job: options.JobId, text: _Text, json: options.Json = False) -> None:
    """Tell a job's agent something. It reads it at its next step, and always before it may complete."""
    from jobs.comments import add_comment

    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_comment(add_comment(installation, job_id, owner, _words(text), owner), json=json)


def reply(job: options.JobId, text: _Text, json: options.Json = False) -> None:
    """Answer a job's question; the job goes on."""
    from jobs.comments import reply as answer

    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_comment(answer(installation, job_id, owner, _words(text), owner), json=json)


def pause(job: options.JobId, json: options.Json = False) -> None:
    """Pause a job. A waiting one at once, a running one after its present step."""
    from jobs import lifecycle

    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_job(lifecycle.pause(installation, job_id, owner, owner), json=json)


def resume(  # noqa: PLR0917  Typer passes them by name
    job: options.JobId,
    max_steps: options.MaxSteps = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    max_time: options.MaxTime = None,
    json: options.Json = False,
) -> None:
    """Let a paused job go on. A used-up budget can be raised here."""
    from jobs import lifecycle

    budget = budget_of(max_steps, max_tokens, max_cost, max_time)
    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_job(lifecycle.resume(installation, job_id, owner, owner, budget), json=json)


def cancel(job: options.JobId, json: options.Json = False) -> None:
    """End a job. Its model call is aborted and its commands are killed within seconds."""
    from jobs import lifecycle

    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_job(lifecycle.cancel(installation, job_id, owner, owner), json=json)


def retry(job: options.JobId, model: options.Model = None, json: options.Json = False) -> None:
    """Continue a failed job. Also an aborted or cancelled one; it goes on from its last checkpoint."""
    from jobs import lifecycle

    with opened_job(job) as (installation, job_id):
        owner = installation.settings.owner
        _print_job(lifecycle.retry(installation, job_id, owner, owner, absolute_model(model)), json=json)


def _words(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _print_job(job: JobView, *, json: bool) -> None:
    if json:
        print(to_json(job.as_dict()))
        return
    render.line((job.id, "bold"), " ", (render.state_text(job), render.STATE_STYLES.get(job.state, "")))
    if job.next_action:
        render.line((job.next_action, "dim"))


def _print_comment(stored: Comment, *, json: bool) -> None:
    if json:
        print(to_json(asdict(stored)))
    else:
        what = "answers the question of" if stored.answers_call else "for"
        render.line(f"comment {stored.number} {what} ", (stored.job_id, "bold"))
