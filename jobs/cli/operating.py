"""`sostenuto worker` and `sostenuto db`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import load
from jobs.cli.text import to_json
from jobs.errors import UsageError

if TYPE_CHECKING:
    from storage.engine import Database


def worker(  # noqa: PLR0917  Typer passes them by name
    queues: Annotated[
        str | None,
        typer.Option("--queues", metavar="NAMES", help="Queues to serve, with commas; default: all."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, max=1000, help="Agents at the same time."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of this worker, unique among all.")] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Ask running workers to leave: those of this machine, or --name, --host, --all."
        ),
    ] = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="With --drain: those of HOST.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="With --drain: all of them.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --drain: until they are gone.")] = True,
) -> None:
    """Run a worker in the foreground. Ctrl-C stops it in order: its jobs go on elsewhere, or at its next start.

    With --drain none is run: workers that run take no more jobs, end their jobs' steps however long they take, hand the
    jobs back, and exit with code 0.
    """
    if drain:
        from jobs.cli.workers import drain as ask_to_leave

        if queues or concurrency or log_level or (name and everywhere):
            raise UsageError("--drain goes with --name, --host or --all, and runs no worker")
        ask_to_leave(name=name, host=host, everywhere=everywhere, wait=wait)
        return
    if host or everywhere:
        raise UsageError("--host and --all go with --drain")
    load()  # a bad setting is told here, in one line
    given = {"--queues": queues, "--concurrency": concurrency, "--name": name, "--log-level": log_level}
    arguments = [
        part for option, value in given.items() if value is not None for part in (option, str(value))
    ]
    # -P: a folder that happens to have a `worker` or `jobs` package must not shadow ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "worker", *arguments])  # noqa: S606  no shell is meant


def upgrade(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="How far.")] = "head",
    json: options.Json = False,
) -> None:
    """Bring the database up to date. Workers of the version before may go on meanwhile."""
    from storage import migrate

    with _database() as db:
        before = migrate.current(db)
        migrate.upgrade(db, revision)
        _print_change(before, migrate.current(db), json=json)


def current(json: options.Json = False) -> None:
    """Show the database's revision. And the one this program needs."""
    from storage import migrate

    with _database() as db:
        found, wanted = migrate.current(db), migrate.head()
    if json:
        print(to_json({"revision": found, "head": wanted, "current": found == wanted}))
    else:
        state = f"this program needs {wanted}: sostenuto db upgrade"
        if found == wanted:
            state = "up to date"
        elif migrate.is_newer(found):
            state = f"made by a newer program; this one knows {wanted}"
        render.line(f"{found or 'empty'} ({state})")


def downgrade(
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="How far; base removes every table.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: options.Json = False,
) -> None:
    """Take the database's schema back. What the older one has no place for is lost; base loses every job."""
    from storage import migrate

    if not yes and not sys.stdin.isatty():
        raise UsageError("a downgrade loses data and nobody can be asked", hint="confirm it with --yes")
    with _database() as db:
        if not yes:
            typer.confirm(f"Take the database back to {revision}, losing data?", abort=True)
        before = migrate.current(db)
        migrate.downgrade(db, revision)
        _print_change(before, migrate.current(db), json=json)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy, a new file.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Copy the SQLite database. Of one moment, while workers run; then copy the data folder."""
    from storage.backup import backup_sqlite

    with _database() as db:
        backup_sqlite(db, file)
    if json:
        print(to_json({"file": str(file.absolute()), "size": file.stat().st_size}))
    else:
        render.line(str(file))


@contextmanager
def _database() -> Iterator[Database]:
    from storage.engine import Database

    with closing(Database(load().database_url)) as db:
        yield db


def _print_change(before: str | None, after: str | None, *, json: bool) -> None:
    if json:
        print(to_json({"before": before, "revision": after}))
    elif before == after:
        render.line(f"{after or 'empty'}: nothing to do")
    else:
        render.line(f"{before or 'empty'} → {after or 'empty'}")
