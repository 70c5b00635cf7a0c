"""`sostenuto flower`: which worker runs what, as Celery tells it."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import render
from jobs.cli.context import load

PORT = 5555


def flower(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0: a free one.")
    ] = PORT,
    url_prefix: Annotated[
        str, typer.Option("--url-prefix", metavar="PATH", help="Below which path, behind a proxy.")
    ] = "",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen where other machines reach it. Plain HTTP.")
    ] = False,
) -> None:
    """Serve Flower in the foreground: workers, their tasks, queues. Read-only. Ctrl-C stops it.

    It asks for the name sostenuto and a password: SOSTENUTO_FLOWER_PASSWORD, else one that it makes and keeps.
    """
    from jobs.flower_server import USER, password, password_file, serve_flower

    settings = load()

    def listening(url: str) -> None:
        made = settings.flower_password is None
        if made and not render.on_terminal():  # what goes elsewhere is kept, and would keep the password
            print(f"name {USER}, password in {password_file(settings)}")
        print(f"listening on {url}", flush=True)
        if made and render.on_terminal():
            render.line(("  name     ", "dim"), USER)
            render.line(("  password ", "dim"), password(settings))

    serve_flower(settings, host, port, url_prefix=url_prefix, allow_remote=allow_remote, listening=listening)
