"""The three commands as people and programs use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.settings import Settings
from storage.engine import Database
from tests.archive.making import ended_job, rich_job
from tests.cli.conftest import Cli, cli, folder
from tests.factories import set_columns

__all__ = ["cli", "folder"]


@pytest.fixture
def ids(cli: Cli, folder: Path) -> list[str]:
    """A running job and one that ended long ago, in the installation of this folder."""
    from tests.archive.conftest import open_at

    assert cli("list").code == 0
    settings = Settings(data_dir=folder / "sostenuto-data")
    home = open_at(settings.database_url, settings.data_dir)
    running, ended = rich_job(home).job_id, ended_job(home)
    set_columns(home.db, ended, completed_at=home.db.clock() - 1000)
    home.close()
    assert isinstance(home.db, Database)
    return [running, ended]


def test_export_import_and_prune(
    cli: Cli, folder: Path, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each of them prints, in words and as JSON, and its exit code."""
    running, ended = ids
    said = cli("export", running[-8:], "--to", "one")
    assert (said.code, said.out, said.err) == (0, "1 jobs in one\n", "")
    told = cli("export", "--all", "--to", "one", "--json").data
    assert (told["moved"], told["problems"]) == (False, [])
    assert {job["job"]: job["state"] for job in told["jobs"]} == {running: "queued", ended: "succeeded"}
    assert [
        job["job"] for job in cli("export", "--state", "succeeded", "--to", "two", "--json").data["jobs"]
    ] == [ended]

    assert cli("prune", "--older-than", "5m", "--dry-run", "--json").data["jobs"] == [ended]
    pruned = cli("prune", "--older-than", "5m", "--archive", "one")
    assert (pruned.code, pruned.out) == (0, "1 jobs removed, all of them in one\n")
    assert cli("show", ended).code == 3
    assert (cli("prune", "--older-than", "5m").out, cli("audit", "--kind", "remove").code) == (
        "0 jobs removed\n",
        0,
    )

    (folder / "one/contexts/running" / running / "planning.jsonl").write_text('{"id":1,"pl')
    told_twice = cli("import", "one", "--owner", "local=ann", "--owner", "ben=eve")
    assert (told_twice.code, told_twice.out) == (0, "1 imported, 1 already here, 0 refused\n")
    monkeypatch.setenv("SOSTENUTO_DATA_DIR", str(folder / "elsewhere"))
    damaged = cli("import", "one", "--owner", "ann")
    assert (damaged.code, damaged.out) == (1, "2 imported, 0 already here, 0 refused\n")
    assert damaged.err == f"running/{running}/planning.jsonl:1: half a line, skipped\n"
    again = cli("import", "one", "--json")
    assert (again.code, again.data["already_here"], again.data["problems"]) == (0, 2, [])
    monkeypatch.setenv("SOSTENUTO_OWNER", "ann")
    assert cli("show", running, "--json").data["owner"] == "ann"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["export", "--to", "x"], "which jobs?"),
        (["export", "--all"], "where to?"),
        (["export", "abc", "--all", "--to", "x"], "not both"),
        (["export", "--state", "suceeded", "--to", "x"], "did you mean 'succeeded'?"),
        (["export", "--all", "--to", "x", "--wait", "soon"], "is not a span of time"),
        (["prune", "--older-than", "old"], "is not a span of time"),
        (["import", "nowhere"], "there is no archive in nowhere"),
        (["import", ".", "--owner", "=x"], "names no owner"),
    ],
)
def test_mistakes_are_told_in_one_line(cli: Cli, command: list[str], told: str) -> None:
    said = cli(*command)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert said.err.count("\n") == 1
    assert json.loads(cli(*command, "--json").err)["error"]["exit_code"] == 2
