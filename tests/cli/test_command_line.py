"""The command line itself: help, errors and exit codes, quiet pipes, colours on a terminal, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli.app import DATABASE, FILES, JOBS, PIECES
from jobs.cli.text import clean, one_line, to_json
from tests.cli.conftest import PROGRAM, Agent, Cli

COMMANDS = [
    [], ["worker"], *([name] for name in JOBS), *(["files", name] for name in FILES),
    *(["pieces", name] for name in PIECES), *(["db", name] for name in DATABASE),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_that_fits_a_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = cli(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Usage: sostenuto")
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "..." not in outcome.out.replace("[ARGS]...", "").replace("]...", ""), "a summary that was cut"


def test_every_command_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [command for command in COMMANDS[1:] if f"`{' '.join(command)}" not in text] == []


@pytest.mark.parametrize("group", [[], ["files"], ["pieces"], ["db"]], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(cli: Cli, group: list[str]) -> None:
    outcome = cli(*group)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Commands:" in outcome.out


def test_every_command_but_the_foreground_ones_has_json(cli: Cli) -> None:
    without = [" ".join(command) for command in COMMANDS[1:] if "--json" not in cli(*command, "--help").out]
    assert without == ["worker", "pieces schema"]


def test_help_starts_without_the_heavy_libraries() -> None:
    """Start-up time is imports: the help must need none of these."""
    heavy = ["sqlalchemy", "alembic", "pydantic", "celery", "kombu", "ruamel", "rich", "openai"]
    code = (
        "import sys; from jobs.cli import run; run(['--help'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_the_version(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"sostenuto {version('sostenuto')}\n"


MISTAKES = [
    (["lst"], 2, "No such command 'lst'. Did you mean 'list'?"),
    (["submit"], 2, "Missing argument 'INSTRUCTION' (see: sostenuto submit --help)"),
    (["submit", "x", "--pieces", "y"], 2, "No such option: --pieces (did you mean --piece?)"),
    (
        ["submit", "x", "--max-steps", "many"],
        2,
        "Invalid value for '--max-steps': Input should be a valid integer",
    ),
    (["submit", "x", "--max-steps", "0"], 2, "max_steps is 0"),
    (
        ["submit", "x", "--max-time", "long"],
        2,
        "--max-time: 'long' is not a span of time; allowed are 90, 45s",
    ),
    (["submit", "x", "--at", "noonish"], 2, "--at: 'noonish' is not a time; allowed are 2026-12-24T08:00"),
    (["submit", "x", "--piece", "generl"], 2, "there is no piece 'generl' (did you mean 'general'?)"),
    (["submit", "x", "--file", "nope.csv"], 2, "nope.csv"),
    (["submit", ""], 2, "the instruction is empty"),
    (["list", "--state", "runing"], 2, "there is no state 'runing' (did you mean 'running'?)"),
    (["show", "zzz"], 3, "there is no job zzz (list the jobs with: sostenuto list)"),
    (["watch", "zzz"], 3, "there is no job zzz"),
    (["pieces", "show", "../general"], 2, "there is no piece '../general'"),
    (["pieces", "validate", "nope.yaml"], 3, "there is no file nope.yaml"),
    (["db", "downgrade", "base"], 2, "nobody can be asked (confirm it with --yes)"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_line_with_an_exit_code(
    cli: Cli, arguments: list[str], code: int, message: str
) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_with_json_an_error_is_an_object(cli: Cli) -> None:
    outcome = cli("show", "zzz", "--json")
    assert json.loads(outcome.err) == {
        "error": {
            "type": "JobNotFound",
            "message": "there is no job zzz",
            "hint": "list the jobs with: sostenuto list",
            "exit_code": 3,
        }
    }
    assert outcome.out == ""


def test_json_after_two_dashes_is_no_option(cli: Cli) -> None:
    assert cli("show", "--", "--json").err.startswith("error: ")


def test_a_bad_setting_is_told_before_anything_is_done(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOSTENUTO_CONCURENCY", "3")
    outcome = cli("submit", "x")
    assert outcome.code == 2
    assert outcome.err == (
        "error: unknown variable SOSTENUTO_CONCURENCY; did you mean 'SOSTENUTO_CONCURRENCY'?\n"
    )
    assert not (folder / "sostenuto-data").exists()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://user:hunter2@127.0.0.1:1/none", 5),
        ("sqlite:////tmp", 5),
        ("oracle://h/x", 2),
    ],
)
def test_a_database_that_cannot_be_used(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, code: int
) -> None:
    monkeypatch.setenv("SOSTENUTO_DATABASE_URL", url)
    outcome = cli("list")
    assert outcome.code == code
    assert outcome.err.count("\n") == 1
    assert "hunter2" not in outcome.err


def test_another_database_is_not_migrated_unasked(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOSTENUTO_DATABASE_URL", "sqlite:///mine.db")
    outcome = cli("list")
    assert (outcome.code, "(run: sostenuto db upgrade)" in outcome.err) == (5, True)
    assert cli("db", "current", "--json").data["current"] is False
    assert cli("db", "upgrade", "--json").data["before"] is None
    assert cli("db", "current", "--json").data["current"] is True
    assert cli("list").code == 0
    assert cli("db", "downgrade", "base", "--yes", "--json").data["revision"] is None


def test_an_unexpected_error_shows_no_secret_and_no_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("with sk-secret\nin two lines")

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr("jobs.views.list_jobs", broken)
    outcome = cli("list")
    assert outcome.code == 1
    assert outcome.err.startswith("error: unexpected ValueError: with *** in two lines (please report it")
    assert outcome.err.count("\n") == 1
    monkeypatch.setenv("SOSTENUTO_DEBUG", "1")
    debugged = cli("list").err
    assert "Traceback" in debugged
    assert "ValueError" in debugged
    assert "sk-secret" not in debugged


def test_the_worker_runs_as_a_process_that_a_foreign_folder_cannot_shadow(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: seen.append(arguments))
    options = ["--queues", "agent", "--concurrency", "3", "--name", "w1", "--log-level", "debug"]
    assert cli("worker", *options).code == 0
    assert seen == [[sys.executable, "-P", "-m", "worker", *options]]


def test_pieces_are_listed_shown_and_validated(cli: Cli, folder: Path) -> None:
    listed = cli("pieces", "list", "--json").data["pieces"]
    assert [
        (piece["name"], piece["origin"], piece["valid"]) for piece in listed if piece["name"] == "general"
    ] == [("general", "built-in", True)]
    assert cli("pieces", "show", "general", "--json").data["initial_movement"] == "work"
    assert "→ COMPLETE" in cli("pieces", "show", "general").out
    assert cli("pieces", "validate").code == 0
    (folder / "mine.yaml").write_text("name: mine\ndescription: d\nmovments: []\n", encoding="utf-8")
    outcome = cli("pieces", "validate", "mine.yaml")
    assert outcome.code == 2
    assert "mine.yaml:3:1: unknown key 'movments'; did you mean 'movements'?" in outcome.out
    problems = cli("pieces", "validate", "mine.yaml", "--json").data["problems"]
    assert {key: problems[-1][key] for key in ("file", "line", "column")} == {
        "file": "mine.yaml",
        "line": 3,
        "column": 1,
    }


def test_the_schema_is_printed_for_editors(cli: Cli) -> None:
    assert cli("pieces", "schema").data["title"] == "Piece"


def on_a_terminal(arguments: list[str]) -> bytes:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65_536):
            shown += block
    except OSError:  # Linux's way to say that the other end is closed
        pass
    finally:
        child.wait(timeout=30)
        os.close(ours)
    return shown


def test_colours_only_on_a_terminal_and_never_the_model_s(cli: Cli, agent: Agent) -> None:
    job_id = cli("submit", "paint \x1b[31m it").out.strip()
    agent.succeed(agent.claim(job_id), "\x1b]0;title\x07")
    assert "\x1b" not in cli("show", job_id).out
    shown = on_a_terminal(["show", job_id])
    assert b"\x1b[32msucceeded" in shown
    assert b"\x1b[31m" not in shown
    assert b"\x1b]0;" not in shown
    assert b"\x1b[32msucceeded" in on_a_terminal(["list"])


def test_ctrl_c_ends_a_watch_quietly(cli: Cli) -> None:
    job_id = cli("submit", "x").out.strip()
    command = [*PROGRAM, "watch", job_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline()  # the submit event: it is following now
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, "")


def test_a_reader_that_leaves_is_no_error(cli: Cli) -> None:
    job_id = cli("submit", "x").out.strip()
    for _ in range(3):
        cli("comment", job_id, "y" * 90_000)
    command = [*PROGRAM, "show", job_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        err = child.stderr.read()
    assert (child.returncode, err) == (1, b"")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\x1b[2J", "␛[2J"),
        ("\x7f\x85\u2066", "␡\\x85\\u2066"),
        ("[bold]日本語[/bold]", "[bold]日本語[/bold]"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_json_output_is_exact_and_harmless() -> None:
    text = "a\x1b\x9b\u202e\n日本\ud800"
    printed = to_json({"text": text})
    assert json.loads(printed) == {"text": text}
    assert not set(printed) & set("\x1b\x9b\u202e\ud800")
    assert "日本" in printed


def test_one_line_cuts_with_an_ellipsis() -> None:
    assert one_line("a \n\n b", 10) == "a b"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line(" " * 100 + "x", 4).endswith("…")
