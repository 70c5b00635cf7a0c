"""A pytest plugin: no attack was left out at a level that this machine supports, and every promise was attacked.

    python -m pytest -p tests.security.guard FILES

Each test whose parameters name a level must have passed at each of its levels that the kernel supports, and each test
that the table of docs/security.md names must have been among them. Otherwise the session fails, even if no test did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.sandbox.conftest import LEVELS, UNSUPPORTED, supported

ROOT = Path(__file__).parents[2]
WHOLE = "--whole-table"


@dataclass
class Record:
    """What was collected, and how it ended: node ids, and for each the level in its parameters if it has one."""

    levels: dict[str, str | None] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)

    def gaps(self, is_supported: Callable[[str], bool], named: Collection[str]) -> list[str]:
        """What was not shown, one line each."""
        gaps = []
        for test, level in self.levels.items():
            if test in self.passed:
                continue
            if level is not None and not is_supported(level):
                continue
            if level is None and UNSUPPORTED in self.skipped.get(test, ""):
                continue
            gaps.append(
                f"{test} did not pass" + (f" at the level {level}, which works here" if level else "")
            )
        ran = {test.partition("[")[0] for test in self.levels}
        return gaps + [
            f"{test} stands in docs/security.md and was not run" for test in named if test not in ran
        ]

    def summary(self, is_supported: Callable[[str], bool]) -> list[str]:
        """A line for each level: how many attacks were made and held."""
        lines = []
        for level in LEVELS:
            mine = [test for test, at in self.levels.items() if at == level]
            held = sum(test in self.passed for test in mine)
            lines.append(
                f"{level:9} {held} of {len(mine)} held" if is_supported(level) else f"{level:9} not supported"
            )
        free = [test for test, at in self.levels.items() if at is None]
        lines.append(f"{'any':9} {sum(test in self.passed for test in free)} of {len(free)} held")
        return lines


def named_tests(text: str) -> list[str]:
    """The tests in the table of docs/security.md, as node ids."""
    return sorted({f"{file}::{name}" for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)})


def level_of(parameters: Mapping[str, object]) -> str | None:
    """The level that a test's parameters name, as a word or by its class."""
    names = [str(getattr(value, "__name__", value)).lower() for value in parameters.values()]
    return next(
        (level for level in LEVELS if level in names or (level == "none" and "unconfined" in names)), None
    )


_record = Record()
_gaps: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(WHOLE, action="store_true", help="fail unless every test of docs/security.md was run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        _record.levels[item.nodeid] = level_of(callspec.params) if callspec else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _record.passed.add(report.nodeid)
    elif report.failed:
        _record.passed.discard(report.nodeid)
    elif report.skipped:
        _record.skipped[report.nodeid] = str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    named = named_tests((ROOT / "docs/security.md").read_text()) if session.config.getoption(WHOLE) else []
    _gaps.extend(_record.gaps(supported, named))
    if _gaps and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("attacks by level")
    for line in [*_record.summary(supported), *_gaps]:
        terminalreporter.write_line(line)
