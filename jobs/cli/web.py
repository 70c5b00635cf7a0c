"""`sostenuto web`: the HTTP API and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import hints, render
from jobs.cli.context import opened

if TYPE_CHECKING:
    from jobs.installation import Installation

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
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Serve the HTTP API and the page in the foreground. Ctrl-C stops it.

    Programs need a token of `sostenuto tokens create`, people a one-time code: on a terminal it prints one.
    """
    from jobs.api.server import SHUTDOWN_SECONDS, serve
    from jobs.parent import follow_parent, tell_ready

    if with_parent:
        follow_parent(SHUTDOWN_SECONDS + 5)
    with opened() as installation:

        def listening(url: str) -> None:
            if with_parent:
                tell_ready(url)
                return
            print(f"listening on {url}", flush=True)
            if render.on_terminal():  # what goes elsewhere is kept, and would keep the code
                for label, fact in login_facts(installation, url).items():
                    render.line((f"  {label:<6}", "dim"), fact)

        serve(installation, host, port, allow_remote=allow_remote, names=set(name or ()), listening=listening)


def login_facts(installation: Installation, url: str) -> dict[str, str]:
    """A new one-time code, with and without an address to open. For a person's eyes, never for a log."""
    from jobs.api.sessions import create_login_code

    made = create_login_code(installation.db, installation.settings.owner)
    return {
        "page": f"{url}/login#{made.code}",
        "code": f"{made.code}  (once, until {render.moment(made.until)}; then: {hints.program()} tokens login-code)",
    }
