"""Jobs with something in every table and file, and what an archive of theirs looks like."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.archive.exporting import export_jobs
from jobs.archive.importing import JobImport, Owners, import_archive
from jobs.archive.pruning import prune
from jobs.installation import Installation
from jobs.states import State
from jobs.workspace import InputFile, create_workspace, workspace_path
from storage.checkpoints import commit_if_run_owns
from storage.jobs import job_tx
from storage.records import Checkpoint, Commit, NewImage, NewMessage, NewPlan, NewSummary, RunRef
from tests.factories import commit, make_job, move, returned, running_job, said, set_columns

PIXEL = b"\x89PNG not really"


def rich_job(home: Installation, **columns: Any) -> RunRef:
    """A running job in its first movement, in the middle of its work: a row in every table, a workspace with oddities."""
    run = running_job(home.db, **({"metadata": {"nested": {"list": [1, 2.5, None, "ü"]}}} | columns))
    commit(
        home.db,
        run,
        NewMessage("system", "system", "You are an agent.", extra={"movement": "work", "tools": []}),
        NewMessage("user", "head", "Count the stars. 星を数えて", extra={"block": "instruction"}),
        begins_visit=True,
        values={"visit": 1, "epoch": 1},
    )
    commit(
        home.db,
        run,
        said("I read\u2028and look. 😀", ("c1", "Bash", '{"command": "ls"}'), ("c2", "plan", "{}")),
        steps=1,
        cost=0.25,
    )
    commit_if_run_owns(home.db, run, Checkpoint(Commit.RESULT, [returned("c1", "a\x00b\nc", is_error=True)]))
    plan = Checkpoint(
        Commit.RESULT, [returned("c2", "noted", name="plan")], plan=NewPlan("initial", "look up\nthen count")
    )
    commit_if_run_owns(home.db, run, plan)
    sha = hashlib.sha256(PIXEL).hexdigest()
    image = NewImage(sha, "image/png", PIXEL, 1, 1, 85, "input/sky.png")
    gap = NewMessage("user", "gap", "Here it is.", extra={"images": [image.reference()]}, tokens=90)
    commit_if_run_owns(home.db, run, Checkpoint(Commit.GAP, [gap], images=(image,)))
    with job_tx(home.db, run.job_id) as job:
        comment = job.add_comment("ann", "Do not forget the moon.")
        job.update({"inbox_total": comment.number})
    workspace(home, run.job_id)
    return run


def workspace(home: Installation, job_id: str) -> Path:
    """Files, folders, modes, links inside and outside, a pipe."""
    root = create_workspace(
        home.settings.data_dir, job_id, [InputFile("facts.txt", "six × seven\n".encode())]
    )
    (root / "output/deep/er").mkdir(parents=True)
    (root / "output/deep/run.sh").write_text("#!/bin/sh\n")
    (root / "output/deep/run.sh").chmod(0o750)
    (root / "output/deep/er/日本.bin").write_bytes(bytes(range(256)))
    os.utime(root / "output/deep/run.sh", ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    (root / "output/latest").symlink_to("deep/er")
    return root


def ended_job(home: Installation, **columns: Any) -> str:
    """A job that succeeded, with its final summary, and without a workspace."""
    run = running_job(home.db, **columns)
    commit(
        home.db,
        run,
        said("It is 42."),
        steps=1,
        values={"result": "42"},
        move=move(State.SUCCEEDED, "succeed"),
    )
    summary = NewSummary("final", "The answer is 42.\n", "m", 1, 1, 1, 9)
    from storage.summaries import add_summary

    with home.db.write() as conn:
        add_summary(conn, run.job_id, summary, 1, visit=1, now=home.db.clock())
    set_columns(home.db, run.job_id, total_summaries=1, summary_state="done")
    return run.job_id


def some_jobs(home: Installation) -> list[str]:
    """One in every folder, and what refers to each other."""
    parent = rich_job(home, children_open=1, children_total=1, task_type="github_issue", task_identifier="42",
        repository="owner/repo", user="ann", idempotency_key="once")  # fmt: skip
    child = make_job(home.db, State.PAUSED, parent_id=parent.job_id, depth=1)
    done = ended_job(home)
    follower = make_job(home.db, State.QUEUED, inherits_from=done)
    asks = rich_job(home)
    question = {"question": "Which colour?", "choices": ["red", "blue"]}
    parks = Checkpoint(Commit.END, [said(None, ("c3", "transition", '{"next_step": "ASK"}'))], parks=("c3",), steps=1,
        values={"pending_call": "c3", "pending_question": question},
        move=move(State.WAITING_HUMAN, "ask", reason="question", reason_data={"question": "Which colour?"}))  # fmt: skip
    commit_if_run_owns(home.db, asks, parks)
    cancelled = make_job(home.db, State.CANCELLED)
    for job_id in (child, follower):
        create_workspace(home.settings.data_dir, job_id)
    return sorted([parent.job_id, child, done, follower, asks.job_id, cancelled])


def export(home: Installation, archive: Path, job_ids: Sequence[str]) -> list[str]:
    """Exports them; returns what was told of problems."""
    problems: list[str] = []
    export_jobs(home, archive, iter(job_ids), tell=lambda p: problems.append(str(p)), told=lambda _: None)
    return problems


def take(home: Installation, archive: Path, **owners: Any) -> tuple[list[JobImport], list[str]]:
    """Imports the archive: what became of its jobs, and what was told of problems."""
    jobs: list[JobImport] = []
    problems: list[str] = []
    import_archive(
        home,
        archive,
        owners=Owners(**owners),
        tell=lambda problem: problems.append(str(problem)),
        told=lambda job, _: jobs.append(job),
    )
    return jobs, problems


def files_of(archive: Path) -> dict[str, bytes]:
    """Every file of an archive, links as their targets."""
    return {
        str(path.relative_to(archive)): str(path.readlink()).encode()
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(archive.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def lines(archive: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (archive / "contexts" / name).read_text().splitlines()]


def root_of(home: Installation, job_id: str) -> Path:
    return workspace_path(home.settings.data_dir, job_id)


def clear(
    home: Installation, archive: Path | None = None, *, older_than: float = 300.0, dry_run: bool = False
) -> list[str]:
    """Prunes; returns the ids of what went, in the order in which it went."""
    gone: list[str] = []
    prune(
        home,
        older_than,
        archive=archive,
        dry_run=dry_run,
        tell=lambda problem: pytest.fail(str(problem)),
        told=lambda row, is_gone: gone.append(row["id"]) if is_gone else None,
    )
    return gone
