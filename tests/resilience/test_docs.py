"""docs/crash-safety.md names tests that exist, files that exist, and every crash point."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage.crashpoints import CrashPoint

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/crash-safety.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_promise_names_a_test_and_every_file_exists() -> None:
    table = TEXT.partition("## Promise, mechanism, test")[2].partition("\n## ")[0]
    rows = [
        line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ") and "`" in line
    ]
    assert len(rows) > 20
    for promise, _, where, tests, _ in rows:
        assert "::" in tests, promise
        for file in re.findall(r"`([\w/]+\.py)`", where):
            assert (ROOT / file).exists(), file


def test_every_crash_point_is_listed() -> None:
    table = TEXT.partition("## Crash points")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", table, re.MULTILINE) == [
        str(point) for point in CrashPoint
    ]


def test_every_test_of_this_folder_is_named() -> None:
    """A promise that is tested is told."""
    defined = {
        name
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert defined - {name for _, name in TESTS} <= {
        "test_calm_holds_from_the_start_and_while_time_passes",
        "test_a_small_step_of_the_wall_clock_does_not",
    }
