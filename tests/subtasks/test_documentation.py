"""What docs/subtasks.md states in figures and examples is so."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.pieces.loader import load_piece
from jobs.settings import Settings
from worker.subtask_tool import spawn_may_be_used

PAGE = (Path(__file__).parents[2] / "docs/subtasks.md").read_text()


def test_its_piece_is_one_and_is_offered_the_tool(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "split.yaml"
    file.write_text(f"name: split\ndescription: d\ninitial_movement: split\n{example}")
    piece = load_piece(file)
    assert spawn_may_be_used(piece, piece.movements[0])


def test_its_figures(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert f"`max_subtasks` ({settings.max_subtasks} in all a job)" in PAGE
    assert f"`max_subtask_depth` ({settings.max_subtask_depth} levels;" in " ".join(PAGE.split())
