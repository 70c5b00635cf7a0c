"""`sostenuto doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.context import load, masked
from jobs.cli.flower import PORT as FLOWER_PORT
from jobs.cli.text import clean, to_json
from jobs.cli.web import PORT as WEB_PORT


def doctor(
    web_port: Annotated[
        int,
        typer.Option("--web-port", metavar="N", min=1, max=65_535, help="Where to look for the web server."),
    ] = WEB_PORT,
    flower_port: Annotated[
        int, typer.Option("--flower-port", metavar="N", min=1, max=65_535, help="Where to look for Flower.")
    ] = FLOWER_PORT,
    ask_model: Annotated[
        bool, typer.Option("--ask-model", help="Ask the model for one word. May cost a little.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Look for what is broken or unsafe here. Exit code 1 where something is; each finding says what to do."""
    from jobs.doctor import Verdict, examine

    findings = list(examine(load(), web_port=web_port, flower_port=flower_port, ask_model=ask_model))
    bad = any(finding.verdict is Verdict.BAD for finding in findings)
    if json:
        print(masked(to_json({"safe": not bad, "findings": [asdict(finding) for finding in findings]})))
    else:
        for finding in findings:
            hint = f"\n{'':9}→ {finding.hint}" if finding.hint else ""
            print(masked(clean(f"{finding.verdict:8} {finding.name}: {finding.text}{hint}")))
    if bad:
        raise typer.Exit(1)
