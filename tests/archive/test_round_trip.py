"""Export, import on the other database, export again: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.states import State
from tests.archive.making import export, files_of, some_jobs, take
from tests.factories import job_now, make_jobs


def test_an_archive_comes_back_byte_by_byte_from_the_other_database(
    here: Installation, there: Installation, tmp_path: Path
) -> None:
    ids = some_jobs(here)
    assert export(here, tmp_path / "one", ids) == []

    jobs, problems = take(there, tmp_path / "one")

    assert problems == []
    assert [job for job in jobs if job.outcome != "imported"] == []
    assert sorted(job.job_id for job in jobs) == ids
    for job_id in ids:
        assert job_now(there.db, job_id)["user_key"] == job_now(here.db, job_id)["user_key"]
    export(there, tmp_path / "two", ids)
    one, two = files_of(tmp_path / "one"), files_of(tmp_path / "two")
    assert sorted(one) == sorted(two)
    assert [name for name in one if one[name] != two[name]] == []


@pytest.mark.timeout(900)  # three times ten thousand files: minutes on a machine that is busy otherwise
def test_a_thousand_jobs(here: Installation, there: Installation, tmp_path: Path) -> None:
    """To the other database and back, several with workspaces: the same bytes, with all there is to say of each state."""
    ids = some_jobs(here)
    for state, count in (
        (State.SUCCEEDED, 250),
        (State.FAILED, 250),
        (State.ABORTED, 250),
        (State.CANCELLED, 244),
    ):
        ids += make_jobs(here.db, count, state, task_type="ticket", repository="owner/repo")
    export(here, tmp_path / "one", ids)
    jobs, problems = take(there, tmp_path / "one")
    assert problems == []
    assert len([job for job in jobs if job.outcome == "imported"]) == 1000
    export(there, tmp_path / "two", ids)
    one = files_of(tmp_path / "one")
    assert len(one) > 10_000
    assert one == files_of(tmp_path / "two")
