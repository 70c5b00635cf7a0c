"""`sostenuto web`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import render
from jobs.cli.context import opened

PORT = 8787


def web(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0: a free one.")
    ] = PORT,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen where other machines reach it. Plain HTTP.")
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="A further host name it answers for; may be repeated."),
    ] = None,
) -> None:
    """Serve the HTTP API in the foreground. Ctrl-C stops it; clients need a token of `sostenuto tokens`."""
    from jobs.api.server import serve

    def listening(url: str) -> None:
        print(f"listening on {url}", flush=True)
        render.note("make a token with: sostenuto tokens create")

    with opened() as installation:
        serve(installation, host, port, allow_remote=allow_remote, names=set(name or ()), listening=listening)
