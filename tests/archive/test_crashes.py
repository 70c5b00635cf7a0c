"""Export, import and prune die by SIGKILL at each of their points: nothing is lost by half, and a repetition finishes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobs.archive.opening import contexts_of
from jobs.installation import Installation
from jobs.states import State
from storage.models import job_events
from storage.removal import NOBODY
from tests.archive.making import clear, ended_job, export, files_of, rich_job, root_of, take, workspace
from tests.crash.bench import died_by_kill
from tests.factories import set_columns
from tests.resilience.bench import table_rows
from tests.servers.workers import CommandFactory

IMPORT_POINTS = ("import.committing", "import.committed", "import.committing:3")
REMOVE_POINTS = ("remove.committing", "remove.committed")
EXPORT_POINTS = ("export.written", "export.placed")


def command_env(home: Installation, crash_at: str | None = None) -> Mapping[str, str]:
    settings = home.settings
    env = {
        "SOSTENUTO_DATABASE_URL": settings.database_url,
        "SOSTENUTO_DATA_DIR": str(settings.data_dir),
        "SOSTENUTO_BROKER_URL": str(settings.broker_url),
    }
    return env if crash_at is None else env | {"SOSTENUTO_CRASH_POINT": crash_at}


def job_of_many_rows(home: Installation) -> str:
    """More than one transaction takes."""
    job_id = rich_job(home).job_id
    with home.db.write() as conn:
        at = home.db.clock()
        conn.execute(
            sa.insert(job_events),
            [
                {"job_id": job_id, "seq": 100 + n, "kind": "noted", "at": at, "actor": "x"}
                for n in range(1100)
            ],
        )
    set_columns(home.db, job_id, event_seq=1199)
    return job_id


@pytest.mark.parametrize("point", IMPORT_POINTS)
def test_an_import_dies_at(
    point: str, here: Installation, there: Installation, tmp_path: Path, worker_process: CommandFactory
) -> None:
    """There is no half job, and no half workspace that a job stands on; the same command takes the rest."""
    job_id = job_of_many_rows(here)
    export(here, tmp_path / "one", [job_id])

    died_by_kill(worker_process.run("import", str(tmp_path / "one"), env=command_env(there, point)))

    rows = table_rows(there.db, job_id)
    assert [row.owner for row in rows["jobs"]] == ([] if point == "import.committing" else [NOBODY])
    jobs, problems = take(there, tmp_path / "one")
    assert (problems, [job.outcome for job in jobs]) == ([], ["imported"])
    export(there, tmp_path / "two", [job_id])
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert list((there.settings.data_dir / "workspaces").iterdir()) == [root_of(there, job_id)]


@pytest.mark.parametrize("point", REMOVE_POINTS)
def test_a_prune_dies_at(
    point: str, here: Installation, tmp_path: Path, worker_process: CommandFactory
) -> None:
    """The job is there with all it has, or in the archive and out of sight; the same command removes the rest."""
    job_id = ended_job(here)
    workspace(here, job_id)
    set_columns(here.db, job_id, completed_at=here.db.clock() - 1000)
    arguments = ("--older-than", "5m", "--archive", str(tmp_path / "old"))

    died_by_kill(worker_process.run("prune", *arguments, env=command_env(here, point)))

    rows = table_rows(here.db, job_id)
    if point == "remove.committing":
        assert len(rows["messages"]) == 1
        assert rows["jobs"][0].owner != NOBODY
        assert root_of(here, job_id).exists()
    else:
        assert [row.owner for row in rows["jobs"]] == [NOBODY]
    clear(here, tmp_path / "old")
    assert {name: found for name, found in table_rows(here.db, job_id).items() if found} == {}
    assert not root_of(here, job_id).exists()
    jobs, problems = take(here, tmp_path / "old")
    assert problems == []
    assert [(job.outcome, job.state) for job in jobs] == [("imported", State.SUCCEEDED)]
    assert root_of(here, job_id).exists()


@pytest.mark.parametrize("point", EXPORT_POINTS)
def test_an_export_dies_at(
    point: str, here: Installation, tmp_path: Path, worker_process: CommandFactory
) -> None:
    """What is in its place is whole, and the next export puts the rest beside it, as one that nothing happened to."""
    first, second = sorted([rich_job(here).job_id, ended_job(here)])
    archive = tmp_path / "one"

    died_by_kill(
        worker_process.run("export", first, second, "--to", str(archive), env=command_env(here, point))
    )

    placed = [path.name for path in contexts_of(archive).glob("*/[!.]*") if path.is_dir()]
    assert placed == ([] if point == "export.written" else [first])
    for job_id in placed:
        assert any(contexts_of(archive).glob(f"*/{job_id}/sostenuto/job.json"))
    export(here, archive, [second])
    expected = [second] if point == "export.written" else [first, second]
    export(here, tmp_path / "two", expected)
    assert files_of(archive) == files_of(tmp_path / "two")
