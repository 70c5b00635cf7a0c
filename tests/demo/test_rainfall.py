"""The example's job with another input: every figure of its report comes from the files, none from the script."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs.comments import reply
from jobs.installation import open_installation
from jobs.pieces.loader import load_piece
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from jobs.workspace import InputFile, workspace_path
from tests.demo.figures import expected, reported, unit_named
from tests.demo.recording import ROOT
from tests.servers.workers import CommandFactory
from tests.waiting import wait_until

EXAMPLE = ROOT / "examples" / "rainfall"


def test_the_data_are_the_published_normals() -> None:
    assert expected(EXAMPLE / "tokyo.csv", "mm")[4] == "1598.2"  # as the agency gives it for the year
    assert expected(EXAMPLE / "heathrow.csv", "mm") == [
        "142.6", "135.5", "148.2", "188.8", "615.1", "November: 66.6", "March: 38.8",
    ]  # fmt: skip


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, Path]:
    """Both tables, with Tokyo's August as the wettest month."""
    for name in ("tokyo.csv", "heathrow.csv"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    table = tmp_path / "tokyo.csv"
    text = table.read_text()
    assert "8月,154.7\n" in text
    table.write_text(text.replace("8月,154.7\n", "8月,987.6\n"))
    return table, tmp_path / "heathrow.csv"


def test_a_changed_figure_changes_the_report(
    worker_process: CommandFactory, data_dir: Path, changed: tuple[Path, Path]
) -> None:
    pieces = data_dir / "pieces"
    pieces.mkdir()
    shutil.copy(EXAMPLE / "piece.yaml", pieces / "rainfall.yaml")
    assert load_piece(pieces / "rainfall.yaml").name == "rainfall"
    worker_process(
        env={"SOSTENUTO_MODEL": f"scripted:{EXAMPLE}/script.yaml", "SOSTENUTO_ALLOW_UNSANDBOXED": "true"}
    )
    with open_installation(Settings(data_dir=data_dir)) as installation:
        files = [InputFile(path.name, path) for path in (*changed, EXAMPLE / "指示.txt")]
        request = SubmitRequest("Write the rainfall report.", piece="rainfall", files=files)
        job = submit(installation, request, "local").job.id

        def state() -> str:
            return get_job(installation, job, None).state

        wait_until(lambda: state() == "waiting_human", 60, "it asks for the unit")
        reply(installation, job, "local", "millimetres", "test")
        wait_until(lambda: state() == "succeeded", 60, "it has ended")
        report = (workspace_path(data_dir, job) / "output" / "report.md").read_text()
        result = get_job(installation, job, None).result
    assert unit_named(report) == "millimetres"
    tokyo, heathrow = reported(report)
    assert (tokyo, heathrow) == tuple(expected(table, "mm") for table in changed)
    assert tokyo[5] == "8月: 987.6"
    assert tokyo[4] == "2431.1"
    assert result is not None
    assert "2431.1" in result
