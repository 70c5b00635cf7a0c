"""The table of attacks in docs/security.md names tests that exist and that `make security-test` runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.security.guard import named_tests

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text()
ROWS = [
    line.strip("|").split("|")
    for line in TEXT.partition("## What a hostile")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and "::" in line
]


@pytest.mark.parametrize("test", named_tests(TEXT))
def test_every_test_that_is_named_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_attack_names_what_holds_and_a_test() -> None:
    assert len(ROWS) > 15
    for attack, holds, tests in ROWS:
        assert attack.strip().endswith("."), attack
        assert holds.strip(), attack
        assert named_tests(tests), attack


def test_every_attack_of_the_sandbox_is_named_or_run_all_the_same() -> None:
    """`make security-test` runs whole folders, and each further test by its name."""
    shown = subprocess.run(
        ["make", "-n", "security-test"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    words = shown.split()
    assert "--whole-table" in words
    for test in named_tests(TEXT):
        file = test.partition("::")[0]
        assert test in words or file in words or any(file.startswith(f"{word}/") for word in words), test
