"""The guard of `make security-test` must itself hold: what was left out makes it fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import UNSUPPORTED
from tests.security.guard import Record, level_of
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.landlock import Unconfined

ROOT = Path(__file__).parents[2]
ATTACKS = {"t.py::a[bwrap]": "bwrap", "t.py::a[landlock]": "landlock", "t.py::b": None}


def _gaps(record: Record, *unsupported: str, named: tuple[str, ...] = ()) -> list[str]:
    return record.gaps(lambda level: level not in unsupported, named)


def test_nothing_is_missing_when_all_passed() -> None:
    assert _gaps(Record(ATTACKS, set(ATTACKS)), named=("t.py::a", "t.py::b")) == []


def test_a_supported_level_that_was_skipped_is_a_gap() -> None:
    record = Record(ATTACKS, {"t.py::a[landlock]", "t.py::b"}, {"t.py::a[bwrap]": UNSUPPORTED})
    assert _gaps(record) == ["t.py::a[bwrap] did not pass at the level bwrap, which works here"]
    assert _gaps(record, "bwrap") == []


def test_a_test_that_did_not_run_or_is_not_there_is_a_gap() -> None:
    record = Record(ATTACKS, set(ATTACKS) - {"t.py::b"})
    assert _gaps(record) == ["t.py::b did not pass"]
    record.skipped["t.py::b"] = f"Skipped: {UNSUPPORTED} bwrap: no"
    assert _gaps(record) == []
    assert _gaps(record, named=("t.py::c",)) == ["t.py::c stands in docs/security.md and was not run"]


@pytest.mark.parametrize(
    ("parameters", "level"),
    [({"shell": "bwrap"}, "bwrap"), ({"box": Bwrap}, "bwrap"), ({"x": Unconfined}, "none"), ({"n": 5}, None)],
)
def test_levels_are_known_by_word_and_by_class(parameters: dict[str, object], level: str | None) -> None:
    assert level_of(parameters) == level


@pytest.mark.parametrize(("body", "code"), [("pytest.skip('not today')", 1), ("pass", 0)])
def test_a_session_that_skips_an_attack_fails(tmp_path: Path, body: str, code: int) -> None:
    test = f"import pytest\n@pytest.mark.parametrize('shell', ['none'])\ndef test_it(shell):\n    {body}\n"
    (tmp_path / "test_inner.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.security.guard", "-p", "no:cacheprovider",
               "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)]  # fmt: skip
    base = {name: value for name, value in os.environ.items() if name != "CI"}
    ran = subprocess.run(command, cwd=ROOT, env=base, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert f"none      {1 - code} of 1 held" in ran.stdout
