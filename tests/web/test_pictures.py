"""The documentation's pictures can be made again; those that are kept are small, and the documents show no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.web.screenshots import COLOURS, IMAGES, SIZES, VIEWS

ROOT = Path(__file__).parents[2]
MOST_BYTES, MOST_IN_ALL = 150_000, 4_000_000


def test_they_can_be_made(tmp_path: Path) -> None:
    """As a person makes them: a process of its own, one view of all."""
    command = [sys.executable, "-m", "tests.web.screenshots", "--only", "error", "--folder", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    made = list(tmp_path.iterdir())
    assert len(made) == len(SIZES) * len(COLOURS)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in made)


def test_they_are_small_and_those_that_are_shown_are_there() -> None:
    kept = {file.name: file.stat().st_size for file in IMAGES.glob("page-*.png")}
    assert kept.keys() == {
        f"page-{view.name}-{size}-{colours}.png" for view in VIEWS for size in SIZES for colours in COLOURS
    }
    assert max(kept.values()) < MOST_BYTES
    assert sum(kept.values()) < MOST_IN_ALL
    shown = {
        name
        for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"images/(page-[\w-]+\.png)", document.read_text(encoding="utf-8"))
    }
    assert len(shown) > 5
    assert shown <= kept.keys()
