"""Workspaces and archives that want out, and secrets that want along."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from jobs.archive.opening import Busy, alone
from jobs.installation import Installation
from jobs.states import State
from storage import masking
from tests.archive.making import export, files_of, rich_job, root_of, take
from tests.factories import job_now

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What nobody may read through an archive, or write to."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("the crown jewels")
    return folder


def test_an_agent_s_tricks_stay_out_of_the_archive(here: Installation, tmp_path: Path, outside: Path) -> None:
    """Links to the outside are names only; a hard link to it, a pipe and a socket are told and left out."""
    job_id = rich_job(here).job_id
    root = root_of(here, job_id)
    (root / "output/link").symlink_to(outside / "secret")
    (root / "output/folder").symlink_to(outside)
    (root / "output/hard").hardlink_to(outside / "secret")
    (root / "output/twin").write_text("twins")
    (root / "output/other").hardlink_to(root / "output/twin")
    os.mkfifo(root / "output/pipe")
    (root / "output" / os.fsdecode(b"\xff\xfe")).write_text("no text")

    problems = export(here, tmp_path / "one", [job_id])

    files = files_of(tmp_path / "one")
    assert not any(b"crown" in data for data in files.values())
    assert not any(path.is_symlink() for path in (tmp_path / "one").rglob("*"))
    assert sorted(text.split("is left out")[0].rpartition("/")[2].strip(" '") for text in problems) == [
        "\\udcff\\udcfe", "hard", "pipe",
    ]  # fmt: skip
    both = [data for name, data in files.items() if name.endswith(("output/twin", "output/other"))]
    assert both == [b"twins", b"twins"]


def test_an_archive_s_tricks_lead_nowhere(
    here: Installation, there: Installation, tmp_path: Path, outside: Path
) -> None:
    """Links in place of folders and files, paths that climb, a list that lies: nothing is read or written outside."""
    run, archive = rich_job(here), tmp_path / "one"
    export(here, archive, [run.job_id])
    running = archive / "contexts/running"
    home = running / run.job_id
    inside = home / "sostenuto/workspace/output"
    (inside / "to-secret").symlink_to(outside / "secret")
    (inside / "to-folder").symlink_to(outside)
    (inside / "hard").hardlink_to(outside / "secret")
    os.mkfifo(inside / "pipe")
    (home / "planning.jsonl").unlink()
    (home / "planning.jsonl").symlink_to(outside / "secret")
    shutil.rmtree(home / "sostenuto/images")
    (home / "sostenuto/images").symlink_to(outside)
    told = [
        {"path": "../../escaped", "kind": "link", "target": "x"},
        {"path": "/etc/escaped", "kind": "file", "mode": "0777"},
        {"path": "output/up", "kind": "link", "target": "../../../outside/secret"},
        {"path": "output/root", "kind": "link", "target": "/etc/passwd"},
        {"path": "output/loop", "kind": "link", "target": "."},
        {"path": "output/loop/loop/climb", "kind": "link", "target": "../../../x"},
        {"path": "output/winding", "kind": "link", "target": "loop/../../../outside"},
        {"path": "input/facts.txt", "kind": "link", "target": "../output/latest"},
        {"path": "input", "kind": "folder", "mode": "7777"},
        {"path": 7, "kind": "file"},
        {"path": "input/facts.txt", "kind": "file", "mode": "rw", "modified": 1e400},
        {"path": "input/gone", "kind": "file", "mode": "0644"},
    ]
    with (home / "sostenuto/workspace.jsonl").open("a") as listing:
        listing.writelines(json.dumps(record) + "\n" for record in told)
    (running / "..evil").mkdir()
    (running / "a b").mkdir()
    (running / "linked").symlink_to(home)
    metadata = json.loads((home / "metadata.json").read_text()) | {"uuid": "../../../etc"}
    (home / "metadata.json").write_text(json.dumps(metadata))

    jobs, problems = take(there, archive)

    assert [(job.job_id, job.outcome) for job in jobs] == [(run.job_id, "imported")]
    root = root_of(there, run.job_id)
    for path in root.rglob("*"):
        assert path.resolve().is_relative_to(root.resolve()), path
        if path.is_file():
            assert "crown" not in path.read_text(errors="replace")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").stat().st_mode & 0o777 == 0o644
    assert root.joinpath("input").stat().st_mode & 0o7777 == 0o777
    assert [path.name for path in root.parent.iterdir()] == [run.job_id]
    assert not (tmp_path / "there/escaped").exists()
    told_of = "\n".join(problems)
    for name in ("to-secret", "to-folder", "hard", "pipe", "planning.jsonl", "images.jsonl", "escaped", "up", "root",
        "loop", "winding", "facts.txt", "gone", "a b", "linked", "metadata.json"):  # fmt: skip
        assert name in told_of, name


def test_secrets_are_not_exported(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known to the settings by now, though not when they were written: in rows, files and names of tools."""
    job_id = rich_job(here, title=f"use {SECRET}", metadata={"key": SECRET}).job_id
    (root_of(here, job_id) / "output/notes").write_text("x" * (1 << 20) + SECRET + "\n" + SECRET[:9])
    for name in ("_values", "_forms", "_raw_forms", "_longest"):
        monkeypatch.setattr(masking, name, getattr(masking, name))
    masking.register_secrets([SECRET])
    export(here, tmp_path / "one", [job_id])
    found = files_of(tmp_path / "one")
    assert [name for name, data in found.items() if SECRET.encode() in data] == []
    (notes,) = [data for name, data in found.items() if name.endswith("output/notes")]
    assert notes.endswith(b"x***\n" + SECRET[:9].encode())


def test_a_workspace_that_belongs_to_no_job_is_never_replaced(
    here: Installation, there: Installation, tmp_path: Path
) -> None:
    """Somebody's files are in the way: the job is refused, and comes when they are moved."""
    job_id = rich_job(here).job_id
    export(here, tmp_path / "one", [job_id])
    root_of(there, job_id).mkdir(parents=True)
    (root_of(there, job_id) / "mine").write_text("keep")
    jobs, _ = take(there, tmp_path / "one")
    assert [job.outcome for job in jobs] == ["refused"]
    assert (root_of(there, job_id) / "mine").read_text() == "keep"
    root_of(there, job_id).rename(tmp_path / "moved")
    jobs, _ = take(there, tmp_path / "one")
    assert [job.outcome for job in jobs] == ["imported"]


def test_two_at_once_are_one_after_the_other(here: Installation, tmp_path: Path) -> None:
    """Two commands on one archive would write over each other."""
    with alone(tmp_path / "one", "the archive"), pytest.raises(Busy):
        export(here, tmp_path / "one", [])


def test_another_program_s_archive(here: Installation, there: Installation, tmp_path: Path) -> None:
    """Without our folder: what ended can be followed up, what had not ended begins anew when it is resumed."""
    running = rich_job(
        here, task_type="github_issue", task_identifier="7", repository="o/r", user="ann"
    ).job_id
    archive = tmp_path / "one"
    export(here, archive, [running])
    for ours in archive.glob("contexts/*/*/sostenuto"):
        shutil.rmtree(ours)
    plain = archive / "contexts/running" / running
    lines = [json.loads(line) for line in (plain / "messages.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("tool_calls", None)
        line.pop("tool_call_id", None)
    (plain / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("won", "lost"):
        copy = archive / "contexts/completed" / name
        shutil.copytree(plain, copy)
        (copy / "current.jsonl").unlink()
        (copy / "metadata.json").write_text((copy / "metadata.json").read_text().replace(running, name))
    (archive / "contexts/completed/won/final_summary.txt").write_text("All is well.")
    (archive / "contexts/tasks.db").unlink()

    jobs, problems = take(there, archive)

    assert [text for text in problems if "tasks.db" not in text] == []
    assert {job.job_id: (job.state, job.anew) for job in jobs} == {
        "won": (State.SUCCEEDED, False), "lost": (State.FAILED, False), running: (State.PAUSED, True),
    }  # fmt: skip
    won = job_now(there.db, "won")
    assert (won["summary_state"], won["total_messages"], won["repository"]) == ("done", len(lines), "o/r")
    assert job_now(there.db, running)["title"].startswith("Count the stars")
    again, _ = take(there, archive)
    assert {job.outcome for job in again} == {"already_here"}
    export(there, tmp_path / "two", ["won", "lost", running])
    two = json.loads((tmp_path / "two/contexts/completed/won/sostenuto/job.json").read_text())
    assert two["row"]["result"] == "I read\u2028and look. 😀"
