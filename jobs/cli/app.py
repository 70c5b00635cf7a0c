"""All commands of `sostenuto`, in the order of its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from jobs.cli import (
    archiving,
    auditing,
    checkup,
    control,
    demo,
    exchanges,
    files,
    flower,
    following,
    model_view,
    notes,
    operating,
    pieces,
    reading,
    submitting,
    tokens,
    up,
    web,
    workers,
)

Commands = dict[str, Callable[..., Any]]

MACHINE: Commands = {"up": up.up, "demo": demo.demo}
JOBS: Commands = {
    "submit": submitting.submit,
    "list": reading.list_jobs,
    "show": reading.show,
    "watch": following.watch,
    "transcript": reading.transcript,
    "summaries": reading.summaries,
    "notes": notes.notes,
    "context": model_view.context,
    "exchange": exchanges.exchange,
    "comment": control.comment,
    "reply": control.reply,
    "pause": control.pause,
    "resume": control.resume,
    "cancel": control.cancel,
    "retry": control.retry,
    "export": archiving.export,
    "import": archiving.import_,
    "prune": archiving.prune,
}
FILES: Commands = {"list": files.list_files, "get": files.get, "put": files.put}
PIECES: Commands = {
    "list": pieces.list_pieces,
    "show": pieces.show,
    "validate": pieces.validate,
    "graph": pieces.graph,
    "schema": pieces.schema,
}
DATABASE: Commands = {
    "upgrade": operating.upgrade,
    "current": operating.current,
    "downgrade": operating.downgrade,
    "backup": operating.backup,
}
TOKENS: Commands = {
    "create": tokens.create,
    "list": tokens.list_tokens,
    "revoke": tokens.revoke,
    "login-code": tokens.login_code,
}


def execute(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. Raises what the command raises, and Typer's own usage errors."""
    code = command_tree().main(list(arguments), prog_name="sostenuto", standalone_mode=False)
    return code if isinstance(code, int) else 0


def command_tree() -> Any:
    """The whole command, as Click knows it."""
    app = _group("Run LLM agents as durable jobs: every step is committed before the next.", MACHINE | JOBS)
    app.add_typer(_group("Files of a job's workspace.", FILES), name="files")
    app.add_typer(_group("Pieces: the workflows that jobs run.", PIECES), name="pieces")
    app.command("worker")(operating.worker)
    app.command("workers")(workers.workers)
    app.command("web")(web.web)
    app.command("flower")(flower.flower)
    app.add_typer(_group("Tokens of the HTTP API.", TOKENS), name="tokens")
    app.command("doctor")(checkup.doctor)
    app.command("audit")(auditing.audit)
    app.add_typer(_group("The database's schema.", DATABASE), name="db")
    app.callback(invoke_without_command=True)(_root)
    return typer.main.get_command(app)


def _group(text: str, commands: Commands) -> typer.Typer:
    # Plain help, without Rich's markup: it starts twice as fast, and reads as well in a pipe.
    group = typer.Typer(
        help=text,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for name, function in commands.items():
        group.command(name)(function)
    group.callback(invoke_without_command=True)(_help_without_command)
    return group


def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"sostenuto {version_of('sostenuto')}")
        raise typer.Exit
    _help_without_command(context)
