"""The table of guards is honest: each text is there once, each test exists, and the guide tells of each guard."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, mutate
from tests.mutants.table import MUTANTS, Mutant

GUIDE = (ROOT / "docs/crash-safety.md").read_text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_guard_can_be_taken_away(mutant: Mutant, tmp_path: Path) -> None:
    file = tmp_path / mutant.file
    file.parent.mkdir(parents=True)
    file.write_text((ROOT / mutant.file).read_text())
    mutate(tmp_path, mutant)
    assert mutant.old != mutant.new
    ast.parse(file.read_text())  # else its tests would be red for no reason


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_tests_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, name = test.split("::")
        name = name.partition("[")[0]
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_names_are_unique_and_told() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 25
    told = GUIDE.partition("## Promise, mechanism, test")[2].partition("\n## ")[0]
    told += GUIDE.partition("## Guards of their own")[2].partition("\n## ")[0]
    assert set(re.findall(r"(?<!\*)\*([^*|`]+)\*(?!\*)", told)) == set(names)


def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("a = 1\na = 1\n")
    with pytest.raises(ValueError, match="2 times"):
        mutate(tmp_path, Mutant("twice", "file.py", "a = 1", "a = 2", ("tests/x.py::test",)))
