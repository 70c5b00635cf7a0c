"""`sostenuto submit`."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options
from jobs.cli.context import opened

if TYPE_CHECKING:
    from jobs.lifecycle import Budget
    from jobs.submit import SubmitReceipt

_Instruction = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUCTION", help="What to do, in words; - reads it from stdin.", show_default=False
    ),
]
_Files = Annotated[
    list[Path] | None, typer.Option("--file", metavar="FILE", help="Put a file into input/; may be repeated.")
]


def submit(  # noqa: PLR0917  Typer passes them by name
    instruction: _Instruction,
    piece: options.Piece = None,
    file: _Files = None,
    repo: Annotated[str | None, typer.Option("--repo", help="Repository it is about.")] = None,
    task_type: Annotated[str, typer.Option("--task-type", help="Kind of the thing it is about.")] = "local",
    task_id: Annotated[str | None, typer.Option("--task-id", help="Identifier of that thing.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Person it is for.")] = None,
    inherit: Annotated[
        str | None,
        typer.Option("--inherit", metavar="JOB", help="Continue from this job, which must have ended."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Same key: the same job, made once.")] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher runs first.")] = 0,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Not before: 2026-12-24T08:00, 08:00, or +30m.")
    ] = None,
    max_steps: options.MaxSteps = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    max_time: options.MaxTime = None,
    model: options.Model = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end; exit code 7 unless it succeeds.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Submit a job. It is stored, with its files, before this command ends."""
    from jobs.submit import SubmitRequest
    from jobs.submit import submit as accept
    from jobs.views import find_job_id
    from jobs.workspace import InputFile

    budget = budget_of(max_steps, max_tokens, max_cost, max_time)
    with opened() as installation:
        settings = installation.settings
        request = SubmitRequest(
            instruction=_instruction(instruction, settings.max_instruction_chars),
            piece=piece,
            files=[InputFile(path.name, path) for path in file or []],
            task_type=task_type,
            task_identifier=task_id,
            repository=repo,
            user=user,
            inherits_from=None if inherit is None else find_job_id(installation, inherit, settings.owner),
            idempotency_key=key,
            priority=priority,
            available_at=None if at is None else _moment(at),
            budget=budget,
            model=absolute_model(model),
        )
        receipt = accept(installation, request, settings.owner)
        if not wait:
            _print_receipt(receipt, json=json)
            return
        from jobs.cli.following import wait_for

        wait_for(installation, receipt.job, json=json)


def budget_of(steps: int | None, tokens: int | None, cost: float | None, time: str | None) -> Budget:
    """The limits given on the command line. Raises UsageError for a span of time that is none."""
    from jobs.durations import parse_duration
    from jobs.errors import UsageError
    from jobs.lifecycle import Budget

    try:
        return Budget(steps, tokens, cost, None if time is None else parse_duration(time))
    except ValueError as error:
        raise UsageError(f"--max-time: {error}") from None


def _instruction(given: str, most: int) -> str:
    """The words, or those on stdin: read no further than the limit, which `submit` then refuses."""
    if given != "-":
        return given
    from jobs.errors import InvalidInstruction

    data = sys.stdin.buffer.read(most * 4 + 4)  # no character takes more than four bytes
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)
    except UnicodeDecodeError:
        raise InvalidInstruction("the instruction on stdin is not UTF-8 text") from None


def _moment(text: str) -> float:
    from jobs.durations import parse_moment
    from jobs.errors import UsageError

    try:
        return parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--at: {error}") from None


def absolute_model(name: str | None) -> str | None:
    """A script's path made absolute: the worker may run in another folder."""
    if name is None or not name.startswith("scripted:"):
        return name
    return f"scripted:{Path(name.removeprefix('scripted:')).expanduser().absolute()}"


def _print_receipt(receipt: SubmitReceipt, *, json: bool) -> None:
    from jobs.cli import render
    from jobs.cli.text import to_json

    job = receipt.job
    if json:
        print(to_json({"job": job.as_dict(), "created": receipt.created, "woken": receipt.woken}))
        return
    if not render.on_terminal():
        print(job.id)
        return
    render.line(("submitted " if receipt.created else "already there "), (job.id, "bold"))
    if job.inherits_from is not None:
        render.line((f"continues from job {render.short(job.inherits_from)}", "dim"))
    render.line((f"piece {job.piece} · follow it with: sostenuto watch {render.short(job.id)}", "dim"))
    if receipt.created and not receipt.woken and job.state == "queued":
        render.line(("no broker was reached: it starts when a worker runs (sostenuto worker)", "yellow"))
