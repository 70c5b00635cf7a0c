"""What prune takes, what it leaves, and that an archived job is whole before it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.archive import exporting
from jobs.installation import Installation
from jobs.states import State
from storage.audit import list_records
from storage.jobs import job_tx
from tests.archive.making import clear, ended_job, rich_job, root_of, take, workspace
from tests.factories import job_now, make_job, set_columns
from tests.resilience.bench import table_rows

OLD = 1000.0


def old(home: Installation, state: str = State.SUCCEEDED, **columns: Any) -> str:
    """A job that ended long ago."""
    return make_job(home.db, state, completed_at=home.db.clock() - OLD, **columns)


def test_what_goes_and_what_stays(here: Installation, tmp_path: Path) -> None:
    """All rows and files of what nothing needs; everything else as it was."""
    goes = ended_job(here)
    workspace(here, goes)
    set_columns(here.db, goes, completed_at=here.db.clock() - OLD)
    young = ended_job(here)
    running = rich_job(here).job_id
    continued, summary_due = old(here), old(here, summary_state="pending")
    make_job(here.db, State.QUEUED, inherits_from=continued)
    unfinished = make_job(here.db, State.WAITING_SUBTASKS, children_open=1, children_total=2)
    child_of_unfinished = old(here, parent_id=unfinished, depth=1)
    open_child_s_parent = old(here, State.CANCELLED, children_open=1)
    make_job(here.db, State.QUEUED, parent_id=open_child_s_parent, depth=1)
    parent = old(here)
    child = old(here, parent_id=parent, depth=1)
    grandchild = old(here, parent_id=child, depth=2)
    stay = [young, running, continued, summary_due, unfinished, child_of_unfinished, open_child_s_parent]
    before = {job_id: table_rows(here.db, job_id) for job_id in stay}

    assert set(clear(here, dry_run=True)) == {goes, grandchild}
    gone = clear(here, tmp_path / "old")

    assert set(gone) == {goes, parent, child, grandchild}
    assert gone.index(grandchild) < gone.index(child) < gone.index(parent)
    for job_id in gone:
        assert {name for name, rows in table_rows(here.db, job_id).items() if rows} == set()
    assert not root_of(here, goes).exists()
    assert {job_id: table_rows(here.db, job_id) for job_id in stay} == before
    assert root_of(here, running).exists()
    told = list_records(here.db, 10, kind="remove")
    assert {row.job_id for row in told} == set(gone)
    assert all(row.data == {"owner": "local", "archived": True} for row in told)
    jobs, problems = take(here, tmp_path / "old")
    assert problems == []
    assert {job.job_id for job in jobs if job.outcome == "imported"} == set(gone)
    assert clear(here) != []  # they are as old as before


def test_a_job_that_changes_while_it_is_archived_stays(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment between the archive and the removal: it would be in neither."""
    job_id = old(here)
    write = exporting.Archive.add

    def then_a_comment(archive: exporting.Archive, job_ids: Any) -> Any:
        exported = write(archive, job_ids)
        with job_tx(here.db, job_id) as job:
            job.update({"inbox_total": job.add_comment("ann", "One more thing.").number})
        return exported

    monkeypatch.setattr(exporting.Archive, "add", then_a_comment)
    assert clear(here, tmp_path / "old") == []
    assert job_now(here.db, job_id)["inbox_total"] == 1


def test_an_archive_that_cannot_be_written_costs_nothing(here: Installation, tmp_path: Path) -> None:
    """Nothing is removed that was not archived."""
    job_id = old(here)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        clear(here, tmp_path / "file")
    assert job_now(here.db, job_id)["owner"] == "local"


def test_sqlite_gives_the_space_back(here: Installation) -> None:
    """A long transcript goes in several transactions; afterwards the file is small again."""
    job_id = old(here, result="x" * 3_000_000)
    clear(here)
    assert table_rows(here.db, job_id)["jobs"] == []
    if here.db.is_sqlite:
        assert Path(str(here.db.url.database)).stat().st_size < 1_000_000
