"""What docs/archive.md shows is so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from jobs.cli.app import command_tree
from jobs.installation import Installation
from storage.archive import layout
from storage.archive.lines import MOST_LINE
from tests.archive.making import export, some_jobs

PAGE = (Path(__file__).parents[2] / "docs/archive.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def test_its_commands_parse() -> None:
    commands = [line.partition("#")[0].split() for line in BLOCKS[0].splitlines()]
    assert len(commands) == 4
    root = command_tree()
    for _, name, *arguments in commands:
        context = root.make_context("sostenuto", [], resilient_parsing=True)
        root.get_command(context, name).make_parser(context).parse_args(arguments)


def test_its_examples_with_sqlite3_and_jq(here: Installation, tmp_path: Path) -> None:
    export(here, tmp_path / "keep", some_jobs(here))
    done = subprocess.run(["sh", "-c", BLOCKS[1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["completed|1", "failed|1", "paused|1", "running|3", "2", "Bash"]


def test_its_files_and_figures() -> None:
    names = {
        name for name in vars(layout).values() if isinstance(name, str) and name.endswith((".jsonl", ".json"))
    }
    for name in names | {layout.TASKS, layout.FINAL_SUMMARY}:
        assert name.rpartition("/")[2] in PAGE, name
    assert f"more than {MOST_LINE >> 20} MiB" in PAGE
