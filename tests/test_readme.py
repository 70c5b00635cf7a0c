"""The README is true: its output is the demo's, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from jobs.cli.app import command_tree
from tests.demo.recording import RECORDING, constant

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_screen_shows_what_the_demo_prints() -> None:
    (shown,) = blocks("text")
    assert constant(shown).rstrip() in constant(RECORDING.read_text())
    assert "KILL" in shown
    assert README.index("KILL") < README.index("## Your own job")


COMMANDS = [
    line.removeprefix("$ ")
    for block in blocks("console")
    for line in block.splitlines()
    if line.startswith("$ ")
]


def test_there_are_commands_to_check() -> None:
    assert sum(command.startswith("sostenuto ") for command in COMMANDS) >= 5
    assert {"make demo", "make test"} <= {command.split("#")[0].strip() for command in COMMANDS}


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("sostenuto ")])
def test_a_command_of_the_readme_parses(command: str) -> None:
    """Up to running it: every command and option is known to the program."""
    words = shlex.split(command, comments=True)[1:]
    found = command_tree()
    context = found.make_context("sostenuto", [], resilient_parsing=True)
    while hasattr(found, "get_command"):
        found = found.get_command(context, words.pop(0))
        assert found is not None, command
    found.make_parser(context).parse_args(words)
