"""Parameters that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.errors import UsageError

JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job's id, or a unique beginning or end of it.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Piece = Annotated[str | None, typer.Option("--piece", help="Piece to run; default: chosen by keyword.")]
Model = Annotated[str | None, typer.Option("--model", help="Model to use instead of the configured one.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", metavar="N", help="Pause after N steps.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Pause after N tokens.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", metavar="N", help="Pause at this cost.")]
MaxTime = Annotated[
    str | None,
    typer.Option("--max-time", "--max-seconds", metavar="SPAN", help="Pause after running for 90, 30m, 2h …"),
]


def span(option: str, text: str) -> float:
    """The seconds of an option's span of time. Raises UsageError."""
    from jobs.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
