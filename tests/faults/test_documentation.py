"""docs/faults.md names tests that exist, and every test of this folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/faults.md").read_text()
ROWS = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| ") and "`" in line]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_kind_says_what_happens_and_names_a_test() -> None:
    assert len(ROWS) > 15
    for kind, happens, tests in ROWS:
        assert kind.strip(), tests
        assert happens.strip(), kind
        assert "::" in tests, kind


def test_every_test_of_this_folder_is_named() -> None:
    """A fault that is tested for is told."""
    for file in Path(__file__).parent.glob("test_*.py"):
        if file != Path(__file__):
            name = str(file.relative_to(ROOT))
            defined = set(re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE))
            assert defined <= {test for told, test in TESTS if told == name}
