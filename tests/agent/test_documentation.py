"""What docs/agent-loop.md states in figures and examples is so."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.reasons import Reason
from worker import agent, endings, loops, prompts, reminders, transition
from worker.allowed_commands import refusal
from worker.tools.base import CrashPolicy
from worker.tools.catalogue import standard_tools

PAGE = (Path(__file__).parents[2] / "docs/agent-loop.md").read_text()
FLAT = " ".join(PAGE.split())


def test_its_figures() -> None:
    """A page that tells old bounds misleads whoever tunes by it."""
    for words in (
        f"the last {prompts.THREAD_REMARKS} remarks ({prompts.REMARK_CHARS} characters each)",
        f"the newest {prompts.UNREAD_SHOWN}, {prompts.UNREAD_CHARS:,} characters each",
        f"after {agent.MOST_FRUITLESS} such replies in a row",
        f"{endings.MOST_MODEL_FAILURES} failures in a row",
        f"({endings.FIRST_BACKOFF:.0f} s, doubled to {endings.LONGEST_BACKOFF:.0f} s; {endings.MOST_MODEL_FAILURES} in a row",
        f"at most {transition.LESSONS_CHARS:,} characters",
        f"after {reminders.STEPS_WITHOUT_TODO_WRITE} steps without a `todo_write`",
        f"for {loops.WARN_AFTER} steps. After {loops.STOP_AFTER} more",
    ):
        assert words in FLAT, words


def test_its_reasons_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE)) & {reason.value for reason in Reason}
    assert named >= {
        "no_transition",
        "model_error",
        "model_refused",
        "too_many_movements",
        "too_many_revisits",
    }


def test_what_it_says_of_tools_after_a_crash() -> None:
    for policy in CrashPolicy:
        found = re.search(rf"`{policy}` \(([^)]*)\)", FLAT)
        assert found is not None
        named = set(found[1].split(", ")) - {"read_comments", "recall"}
        assert named == {tool.name for tool in standard_tools() if tool.crash is policy}


def test_its_examples_of_commands() -> None:
    for word, wanted in (("refused", True), ("allowed", False)):
        found = re.search(rf'{word} with \["ls", "git\*"\]:  (.*)', PAGE)
        assert found is not None
        for command in re.split(r"\s{3,}", found[1]):
            assert (refusal(command, ["ls", "git*"]) is not None) is wanted, command
