"""Questions, costs, budgets and contexts at the command line, over a worker's slices in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.installation import Installation, open_installation
from jobs.settings_sources import load_settings
from tests.cli.conftest import Cli
from worker.process import WorkerProcess
from worker.slices import run_slice

SCRIPT = """
movements:
  work:
    - calls: [Glob: {pattern: "**/*"}]
    - transition: {next_step: ASK, summary: "Which colour\\u202e?", choices: [red, dark blue]}
    - transition: {next_step: COMPLETE, summary: "{{ last_result }}"}
"""
PIECE = """
name: painting
description: Asks before it paints.
initial_movement: work
movements:
  - name: work
    persona: You paint.
    instruction: Ask, then paint.
    allowed_tools: [Glob]
    ask: {deadline: 2d, default_answer: Take grey.}
    rules: [{condition: unsure, next: ASK}, {condition: done, next: COMPLETE}]
"""


@pytest.fixture
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str | None]]:
    """Runs one slice of the best due job, as the worker of this folder would."""
    (folder / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    (folder / "pieces").mkdir()
    (folder / "pieces" / "painting.yaml").write_text(PIECE, encoding="utf-8")
    monkeypatch.setenv("SOSTENUTO_PIECES_DIR", "pieces")
    monkeypatch.setenv("SOSTENUTO_MODEL", "scripted:script.yaml")
    opened: list[Installation] = []

    def act() -> str | None:
        with open_installation(load_settings()) as installation:
            opened.append(installation)
            return run_slice(WorkerProcess(installation, "test@here", ["agent"], None), None)

    yield act
    assert opened, "the test ran no slice"


def submit(cli: Cli, *more: str) -> str:
    outcome = cli("submit", "Paint it.", "--piece", "painting", *more)
    assert outcome.code == 0, outcome.err
    return outcome.out.strip()


def test_a_question_is_shown_with_its_choices_and_deadline(cli: Cli, work: Callable[[], str | None]) -> None:
    job_id = submit(cli)
    work()
    for command in ("show", "watch"):
        page = cli(command, job_id).out
        assert "Which colour\\u202e?" in page  # made visible, never sent to the terminal
        assert "  1  red\n  2  dark blue\n" in page
        assert "answered by itself " in page
        assert "Take grey." in page
    data = cli("show", job_id, "--json").data
    assert data["pending_question"]["choices"] == ["red", "dark blue"]
    assert data["pending_question"]["default_answer"] == "Take grey."
    assert data["pending_question"]["until"].endswith("Z")
    assert ", until " + data["pending_question"]["until"] + ": Which colour" in data["reason_text"]

    assert cli("reply", job_id, "2", "--json").data["text"] == "dark blue"
    work()
    assert cli("show", job_id, "--json").data["result"] == "local answers: dark blue"


def test_the_context_at_the_command_line(cli: Cli, work: Callable[[], str | None]) -> None:
    job_id = submit(cli)
    before = cli("context", job_id)
    assert before.code == 0
    assert "has not begun" in before.out
    work()
    shown = cli("context", job_id[-8:])
    assert shown.code == 0, shown.err
    assert "── 0 system · " in shown.out
    assert "You paint." in shown.out
    assert "instruction " in shown.out
    assert "→ Glob " in shown.out
    assert "\u202e" not in shown.out
    assert "(no result yet)" in shown.out
    assert "tokens" in shown.out.splitlines()[-1]
    data = cli("context", job_id, "--json").data
    assert [part["message"]["role"] for part in data["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert [part.get("pending", False) for part in data["messages"]] == [False] * 5 + [True]
    assert data["tokens"] == data["tools_tokens"] + sum(part["tokens"] for part in data["messages"])
    assert cli("context", "no-such-job").code == 3


def test_a_cost_that_is_not_known_is_not_shown_as_nothing(
    cli: Cli, work: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(cli)
    work()
    assert "cost 0" in cli("show", job_id).out  # a script costs nothing
    monkeypatch.setattr("worker.prices.PREFIX", "nothing:")
    unknown = submit(cli, "--max-cost", "1")
    work()
    assert "cost unknown" in cli("show", unknown).out
    data = cli("show", unknown, "--json").data
    assert (data["cost"], data["cost_known"]) == (0, False)
    assert "cost unknown" in cli("watch", unknown).out


def test_a_budget_used_up_is_raised_with_the_option_it_names(
    cli: Cli, work: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint must be a command that works."""
    monkeypatch.setenv("SOSTENUTO_PRICES", '{"scripted:*": {"input": 1000000, "output": 0}}')
    job_id = submit(cli, "--max-cost", "0.5")
    work()
    data = cli("show", job_id, "--json").data
    assert (data["state"], data["reason_text"]) == ("paused", "its cost budget of 0.5 is used up")
    command = data["next_action"].partition("sostenuto ")[2].replace(" N", " 1e6").split()
    assert cli(*command).code == 0
    work()
    assert cli("show", job_id, "--json").data["state"] == "waiting_human"


def test_a_retry_with_another_model(cli: Cli, work: Callable[[], str | None], folder: Path) -> None:
    """Failed with one model, the job goes on from its last step with another one."""
    (folder / "bad.yaml").write_text(
        'movements: {work: [{calls: [{Glob: {pattern: "*"}}]}, {refusal: I will not.}]}', encoding="utf-8"
    )
    job_id = submit(cli, "--model", "scripted:bad.yaml")
    work()
    assert cli("show", job_id, "--json").data["reason"] == "model_refused"
    assert cli("retry", job_id, "--model", "scripted:script.yaml").code == 0
    work()
    data = cli("show", job_id, "--json").data
    assert (data["state"], data["model"], data["steps"]) == (
        "waiting_human",
        f"scripted:{folder}/script.yaml",
        2,
    )


def test_a_pause_remembers_what_the_job_waited_for(cli: Cli, work: Callable[[], str | None]) -> None:
    job_id = submit(cli)
    work()
    assert cli("pause", job_id).code == 0
    assert "dark blue" in cli("show", job_id).out
    assert cli("resume", job_id, "--json").data["state"] == "waiting_human"
    cli("pause", job_id)
    assert cli("reply", job_id, "1", "--json").data["text"] == "red"
    assert cli("show", job_id, "--json").data["state"] == "paused"
    assert cli("resume", job_id, "--json").data["state"] == "queued"
    work()
    assert cli("show", job_id, "--json").data["result"] == "local answers: red"
