"""`make bench` in its quick mode: every measurement runs end to end, on real servers and worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.__main__ import MEASUREMENTS
from benchmarks.bench import ROOT
from benchmarks.figures import Figure, Table, Target, compared, markdown
from benchmarks.processes import environment
from storage.engine import Database
from storage.migrate import upgrade
from storage.models import jobs

AGENTS = {"Sostenuto", "agents that keep nothing"}
SYSTEMS = {"Sostenuto, SQLite", "Celery, a task and a row a step"}


@pytest.mark.timeout(600)  # a guard: a dozen processes start one after another
def test_every_measurement_runs_and_says_what_was_not_there(tmp_path: Path) -> None:
    """The other systems are absent here: that is said, and what is there is compared all the same."""
    file = tmp_path / "figures.json"
    options = ["--quick", "--json", str(file), "--peers", str(tmp_path / "no-peers")]
    done = subprocess.run([sys.executable, "-m", "benchmarks", *options], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OPENAI_API_KEY": ""}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    run = json.loads(file.read_text())
    tables = {table["title"]: table for table in run["tables"]}
    assert len(tables) == len(MEASUREMENTS) + 1  # short jobs and the long one are one contest
    for table in tables.values():
        assert f"### {table['title']}" in done.stdout
        for figure in table["figures"]:
            assert 0 <= figure["low"] <= figure["median"] <= figure["high"], figure
        assert any(
            figure["ratio"] or figure["target"] or table["title"] == "Floors" for figure in table["figures"]
        )
    short = tables["Jobs of 10 steps that do nothing, 2 at once"]
    assert {figure["name"] for figure in short["figures"]} == SYSTEMS
    (waits,) = (table for title, table in tables.items() if title.startswith("Waiting for models"))
    assert {figure["name"].partition(":")[0] for figure in waits["figures"]} == AGENTS
    latency = tables["From submit to the first model call, an idle system"]
    for table, absent in ((short, "DBOS, LangGraph ("), (waits, "DBOS, LangGraph ("), (latency, "DBOS (")):
        assert any(f"Not installed, so not measured: {absent}" in note for note in table["notes"])
    assert run["machine"]["cores"] >= 1
    assert run["quick"] is True


def test_what_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Temporal's server, when it alone is asked for."""
    command = [sys.executable, "-m", "benchmarks", "--only", "temporal", "--peers", str(tmp_path)]
    nowhere = {name: value for name, value in os.environ.items() if name != "TEMPORAL"} | {
        "PATH": str(tmp_path)
    }
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=nowhere, check=False)
    assert done.returncode == 2, done.stderr
    assert "make bench-temporal" in done.stderr


def test_the_work_whose_instructions_are_counted(tmp_path: Path) -> None:
    """As callgrind is given it: all jobs are submitted, so many of them run to their end."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    database = Database(url)
    upgrade(database)
    command = [sys.executable, "-m", "benchmarks.instructions", str(tmp_path), url, "3", "2"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)
    with database.read() as conn:
        states = sorted(conn.execute(sa.select(jobs.c.state)).scalars())
    database.close()
    assert states == ["queued", "succeeded", "succeeded"]


@pytest.mark.parametrize(("limit", "word"), [(2.0, "reached"), (1.9, "missed")])
def test_a_table_reads_as_markdown(limit: float, word: str) -> None:
    """Median, percentiles, ratio, target; columns that nothing fills are left out."""
    floor = Figure("floor", "ms", [1.0, 1.0, 4.0], settings="as it comes")
    samples = [float(number) for number in range(1, 12)]
    target = Target.at_most(2.0, limit, f"≤ {limit:g}")
    figure = compared(Figure("ours", "ms", [value / 3 for value in samples]), floor, target)
    lines = list(markdown(Table("Title", [floor, figure], ["a note"])))
    assert lines[0] == "### Title"
    assert lines[2].split() == ["|", "|", "median", "|", "spread", "|", "ratio", "|", "target", "|"]
    assert lines[4].split("|")[2].strip() == "1.00 ms"
    cells = [cell.strip() for cell in lines[5].split("|")]
    assert cells[1:-1] == ["ours", "2.00 ms", "0.40 to 3.60", "2.00 × floor", f"≤ {limit:g}: {word}"]
    assert lines[-2:] == ["- floor: as it comes", "- a note"]
