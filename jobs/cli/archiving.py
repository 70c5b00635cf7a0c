"""`sostenuto export`, `import` and `prune`: jobs as folders, to keep, to move, and to clear away."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import options, render
from jobs.cli.context import opened
from jobs.cli.text import clean, to_json
from jobs.errors import UsageError, did_you_mean
from jobs.states import State

if TYPE_CHECKING:
    from jobs.archive.importing import JobImport
    from jobs.installation import Installation
    from storage.archive.lines import Problem, Tell
    from storage.listing import JobFilter

_INCOMPLETE = 1  # the exit code where something was left out, refused or could not be read
_SHOW_EVERY = 100


def export(  # noqa: PLR0917  Typer passes them by name
    job: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...", help="Jobs to export, with all their subtasks.", show_default=False
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The archive: made, or added to.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job, of every owner.")] = False,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only jobs in it; repeatable.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Only this owner's.")] = None,
    repo: Annotated[str | None, typer.Option("--repo", help="Only on this repository.")] = None,
    task_type: Annotated[str | None, typer.Option("--task-type", help="Only of this type.")] = None,
    task_id: Annotated[str | None, typer.Option("--task-id", help="Only on this task.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only for this user.")] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Pause and close them here: they go on where the archive is imported."),
    ] = False,
    wait: Annotated[
        str, typer.Option("--wait", metavar="SPAN", help="With --move: for a running step to end.")
    ] = "10m",
    json: options.Json = False,
) -> None:
    """Write jobs into an archive. Folders with all of a job, its workspace too, for jq, sqlite3 or import."""
    from jobs.archive.exporting import Archive, Exported, export_jobs, ids_that_fit, with_subtasks
    from jobs.archive.moving import move_jobs
    from jobs.views import find_job_id
    from storage.listing import JobFilter

    if to is None:
        raise UsageError("where to?", hint="name the archive's folder with --to DIR")
    wanted = JobFilter(
        owner, _states(state), task_type=task_type, task_identifier=task_id, repository=repo, user=user
    )
    filtered = wanted != JobFilter(states=[])
    if not job and not everything and not filtered:
        raise UsageError("which jobs?", hint="name them, or give --all, or a filter such as --state")
    if job and (everything or filtered):
        raise UsageError("jobs are named, or chosen by --all or a filter, not both")
    wait_seconds = options.span("--wait", wait)
    with opened() as installation, _report(json=json) as (tell, problems):
        named = [find_job_id(installation, part, None) for part in job or ()]
        total = len(with_subtasks(installation, named)) if job else _count(installation, wanted)
        done: list[dict[str, Any]] = []

        def told(exported: Exported) -> None:
            row = exported.row
            done.append({"job": exported.job_id, "state": row["state"], "folder": str(exported.folder)})
            _progress(len(done), total, "exported")

        if move:
            ids = with_subtasks(installation, named or list(ids_that_fit(installation, wanted)))
            with Archive(installation, to, tell) as archive:
                move_jobs(
                    installation,
                    archive,
                    ids,
                    actor=installation.settings.owner,
                    wait_seconds=wait_seconds,
                    told=told,
                )
        else:
            ids_now = iter(with_subtasks(installation, named)) if job else ids_that_fit(installation, wanted)
            export_jobs(installation, to, ids_now, tell=tell, told=told)
    if json:
        print(to_json({"archive": str(to), "moved": move, "jobs": done, "problems": problems}))
    else:
        render.line(
            f"{len(done):,} jobs in {to}"
            + (", closed here: import it where they are to go on" if move else "")
        )
    if problems:
        raise typer.Exit(_INCOMPLETE)


def import_(
    archive: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The archive: the folder that holds contexts/.", show_default=False
        ),
    ],
    owner: Annotated[
        list[str] | None,
        typer.Option(
            "--owner", metavar="[OLD=]NEW", help="Whose the jobs become: all of them, or OLD's; repeatable."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Take the jobs of an archive. Those that had not ended go on here; one that is here already stays."""
    from jobs.archive.importing import import_archive

    counted = {"imported": 0, "already_here": 0, "refused": 0}
    told: list[dict[str, Any]] = []

    def tell_job(job: JobImport, total: int) -> None:
        counted[job.outcome] += 1
        told.append(
            {"job": job.job_id, "outcome": job.outcome, "state": job.state, "anew": job.anew, "why": job.why}
        )
        if not json and (job.outcome == "refused" or job.anew):
            why = (
                job.why
                or "its conversation is not whole: it is paused, and begins its movement anew when resumed"
            )
            print(clean(f"{job.job_id}: {job.outcome}: {why}"), file=sys.stderr)
        _progress(len(told), total, "read")

    with opened() as installation, _report(json=json) as (tell, problems):
        import_archive(installation, archive, owners=_owners(owner), tell=tell, told=tell_job)
    if json:
        print(to_json({**counted, "jobs": told, "problems": problems}))
    else:
        render.line(
            f"{counted['imported']:,} imported, {counted['already_here']:,} already here, {counted['refused']:,} refused"
        )
    if problems or counted["refused"]:
        raise typer.Exit(_INCOMPLETE)


def prune(
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="SPAN", help="Since they ended: 30d, 12h …", show_default=False),
    ],
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Write each one into this archive first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which would go.")] = False,
    json: options.Json = False,
) -> None:
    """Remove ended jobs of this age. Rows and workspaces, of every owner; what is still needed stays."""
    from jobs.archive import pruning

    age = options.span("--older-than", older_than)
    gone: list[str] = []

    def told(row: Mapping[str, Any], is_gone: bool) -> None:
        if is_gone:
            gone.append(row["id"])
            if not json and dry_run:
                render.line(row["id"], f"  {row['state']}  {row['title']}")
            _progress(len(gone), None, "would go" if dry_run else "removed")

    with opened() as installation, _report(json=json) as (tell, problems):
        done = pruning.prune(installation, age, archive=archive, dry_run=dry_run, tell=tell, told=told)
    if json:
        counts = {"removed": 0 if dry_run else done.removed, "archived": done.archived, "kept": done.kept}
        print(to_json({"dry_run": dry_run, **counts, "jobs": gone, "problems": problems}))
    elif dry_run:
        render.line(f"{done.removed:,} jobs would go; their parents may follow")
    else:
        render.line(f"{done.removed:,} jobs removed" + (f", all of them in {archive}" if archive else ""))
    if problems:
        raise typer.Exit(_INCOMPLETE)


def _states(names: list[str] | None) -> list[str]:
    known = [str(name) for name in State]
    for name in names or []:
        if name not in known:
            hint = did_you_mean(name, known) or f"allowed are: {', '.join(known)}"
            raise UsageError(f"there is no state {name!r}", hint=hint)
    return names or []


def _owners(given: list[str] | None) -> Any:
    from jobs.archive.importing import Owners

    owners = Owners(by_name={})
    by_name: dict[str, str] = {}
    for text in given or ():
        old, equals, new = text.rpartition("=")
        if not new.strip() or len(new) > 200 or (equals and not old):
            raise UsageError(f"--owner {text!r} names no owner", hint="give NEW, or OLD=NEW")
        if equals:
            by_name[old] = new
        else:
            owners.all_to = new
    owners.by_name = by_name
    return owners


def _count(installation: Installation, wanted: JobFilter) -> int:
    from storage.listing import count_jobs

    return count_jobs(installation.db, wanted)


@contextmanager
def _report(*, json: bool) -> Iterator[tuple[Tell, list[dict[str, Any]]]]:
    """Problems as they are found: on stderr for people, in the one document for programs."""
    found: list[dict[str, Any]] = []

    def tell(problem: Problem) -> None:
        found.append({"file": problem.file, "line": problem.line, "what": problem.what})
        if not json:
            print(clean(str(problem)), file=sys.stderr)

    yield tell, found


def _progress(done: int, total: int | None, what: str) -> None:
    if done % _SHOW_EVERY == 0:
        render.note(f"{done:,}" + (f" of {total:,}" if total else "") + f" {what}")
