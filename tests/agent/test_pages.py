"""What docs/questions.md and docs/hooks.md show works, and their figures are the code's."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jobs.questions import chosen_answer, question_of
from jobs.settings import Settings
from jobs.settings_sources import load_settings
from jobs.views import JobView
from tests.agent.stage import COMPLETE, Stage, go
from worker import hooks, prompts, transition

DOCS = Path(__file__).parents[2] / "docs"
QUESTIONS, HOOKS = ((DOCS / name).read_text(encoding="utf-8") for name in ("questions.md", "hooks.md"))


def block(page: str, language: str) -> str:
    """The page's one block of code in this language."""
    [found] = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return str(found)


def test_the_piece_that_asks_waits_and_goes_on_as_the_page_says(stage: Stage) -> None:
    folder = stage.folder / "pieces"
    folder.mkdir()
    (folder / "careful.yaml").write_text(block(QUESTIONS, "yaml"), encoding="utf-8")
    job_id = stage.play(go("ASK", "Delete old.txt?"), piece="careful")
    job = stage.job(job_id)
    assert job.pending_question is not None
    days = (job.pending_question["until"] - job.updated_at) / 86_400
    assert round(days, 2) == 2
    assert (job.reason_text or "").startswith("asks a person, until ")
    assert '"Delete nothing."' in QUESTIONS
    assert job.pending_question["default_answer"] == "Delete nothing."


def test_the_choices_of_the_page_are_chosen_as_it_says() -> None:
    listed = re.findall(r"^ +\d  (.+)$", QUESTIONS, re.MULTILINE)
    for said in ("2", "Dark Blue"):
        assert re.search(rf'reply JOB "?{said}"?`', QUESTIONS)
        assert chosen_answer(question_of("?", listed, None, None), said) == "dark blue"


def test_the_figures() -> None:
    for words, page in (
        (f"up to {transition.MOST_CHOICES}, {transition.CHOICE_CHARS} characters each", QUESTIONS),
        (f"the last {prompts.THREAD_REMARKS} comments, {prompts.REMARK_CHARS} characters each", QUESTIONS),
        (f"While {hooks.MOST_HUNG} calls of one hook hang", HOOKS),
        (f"timeout: {Settings(data_dir=Path('data')).hooks.timeout:g} # seconds", HOOKS),
        (f'entry-points."{hooks.GROUP}"', HOOKS),
    ):
        assert words in " ".join(page.split()), words


def test_the_hook_of_the_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    named = tomllib.loads(block(HOOKS, "toml"))["project"]["entry-points"][hooks.GROUP]
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "sostenuto.yaml").write_text(block(HOOKS, "yaml"), encoding="utf-8")
    settings = load_settings({}, tmp_path / "etc").hooks
    assert settings.completion == settings.pause == tuple(named)
    program: dict[str, Any] = {}
    exec(block(HOOKS, "python"), program)  # noqa: S102  the page's own code
    monkeypatch.setattr(hooks, "_registered", {"notify": program["notify"]})
    stage.reopen(hooks=settings.model_dump())
    job_id = stage.play(COMPLETE)
    stage.process.hooks.call_due()
    printed = json.loads(capsys.readouterr().out)
    assert (printed["job"], printed["state"], printed["why"]) == (job_id, "succeeded", "completed")


def test_the_keys_that_a_hook_is_told_exist() -> None:
    listed = re.search(r"as it was at that moment: (.*?) and so on", HOOKS, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) <= set(JobView.__slots__)
