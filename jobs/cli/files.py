"""`sostenuto files`: what lies in a job's workspace."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.text import clean, to_json
from jobs.errors import FileRejected, UsageError

_MOST = 10_000
_Inside = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Path in the workspace, such as output/report.md.", show_default=False
    ),
]


def list_files(job: options.JobId, json: options.Json = False) -> None:
    """List the files in input/ and output/."""
    from jobs.views import iso
    from jobs.workspace import human, list_workspace, workspace_path

    with opened_job(job) as (installation, job_id):
        listing = list_workspace(workspace_path(installation.settings.data_dir, job_id), most=_MOST)
    if json:
        files = [
            {"path": entry.path, "kind": entry.kind, "size": entry.size, "modified": iso(entry.modified)}
            for entry in listing.entries
        ]
        print(to_json({"files": files, "total": listing.total, "complete": listing.complete}))
        return
    pipe = not render.on_terminal()
    rows = [
        [str(entry.size) if pipe else human(entry.size), render.ago(entry.modified), entry.path]
        for entry in listing.entries
    ]
    if pipe:
        rows = [[row[-1], row[0]] for row in rows]
    if rows:
        render.table(["SIZE", "CHANGED", "PATH"], rows)
    else:
        render.note("no files")
    if len(rows) < listing.total:
        render.note(f"… {listing.total - len(rows):,} more")


def get(
    job: options.JobId,
    path: _Inside,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Where to; - is stdout. Default: its name, here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Copy a file out of the workspace."""
    from jobs.audit import record
    from jobs.workspace import open_file, workspace_path

    with opened_job(job) as (installation, job_id):
        root = workspace_path(installation.settings.data_dir, job_id)
        with open_file(root, path) as source:
            record(installation, "download", installation.settings.owner, job_id, path=path)
            if to is not None and str(to) == "-":
                shutil.copyfileobj(source, sys.stdout.buffer)
                return
            target = to or Path(Path(path).name)
            try:
                with target.open("wb" if force else "xb") as sink:
                    shutil.copyfileobj(source, sink)
            except FileExistsError:
                raise UsageError(f"{target} is there already", hint="replace it with --force") from None
            except OSError as error:
                raise UsageError(f"cannot write {target}: {(error.strerror or 'failed').lower()}") from None
    if json:
        print(to_json({"path": path, "file": str(target.absolute()), "size": target.stat().st_size}))
    else:
        print(clean(str(target)))


def put(
    job: options.JobId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of yours.", show_default=False)],
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Where in the workspace. Default: its name, in input/."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Copy a file into the workspace, replacing an older one of that name."""
    from jobs.audit import record
    from jobs.workspace import Limits, store_file, workspace_path

    inside = path or f"input/{file.name}"
    if inside.split("/")[0] not in {"input", "output"}:
        raise FileRejected(f"{inside!r} is outside input/ and output/", hint="such as input/data.csv")
    with opened_job(job) as (installation, job_id):
        settings = installation.settings
        limits = Limits(settings.max_file_bytes, settings.max_workspace_bytes, settings.max_workspace_files)
        size = store_file(workspace_path(settings.data_dir, job_id), inside, file, limits)
        record(installation, "upload", settings.owner, job_id, path=inside, size=size)
    if json:
        print(to_json({"path": inside, "size": size}))
    else:
        print(clean(inside))
