"""`allowed_commands`: what is allowed, and that everything which is not provably so is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.stage import Stage, call, calls, go
from worker.allowed_commands import refusal

GLOBS = ["ls", "git*", "echo", "cat", "./scripts/*"]

ALLOWED = [
    "ls -la output",
    "git log --oneline | cat",
    "git-lfs ls",
    "ls && echo done || echo failed; cat a.txt",
    "ls\ncat b",
    "echo one & echo two",
    "echo 'rm -rf / $(evil) `evil`'",
    'echo "a; rm -rf b | evil" \'c\'"d"',
    "echo a\\ b \\$HOME \\(",
    'echo $HOME "$USER" $1 $? $#',
    "cat < in.txt > out.txt 2>&1",
    "cat 2>/dev/null >>log <<< word",
    "ls &> all.txt",
    "# a comment with $(evil)\nls # and another `evil`",
    "echo a#b",
    "ls \\\n  -l",
    "./scripts/build.sh now",
    "",
    ";;",
]
REFUSED = [
    "rm -rf output",
    "ls; rm x",
    "ls | rm x",
    "ls && rm x",
    "ls || rm x",
    "ls & rm x",
    "ls\nrm x",
    "ls $(rm x)",
    'ls "$(rm x)"',
    "ls `rm x`",
    'ls "`rm x`"',
    "ls ${x:-$(rm x)}",
    'echo "${x@P}"',
    "echo $((a[0]))",
    "echo $[1]",
    "cat <(rm x)",
    "cat > >(rm x)",
    "(rm x)",
    "{ rm x; }",
    "ls() { rm x; }; ls",
    "function ls { rm x; }",
    "if ls; then rm x; fi",
    "for x in a; do rm x; done",
    "while ls; do rm x; done",
    "! rm x",
    "time rm x",
    "coproc rm x",
    "[[ -f x ]]",
    "cat <<EOF\n$(rm x)\nEOF",
    "PATH=. ls",
    "LD_PRELOAD=./x.so ls",
    "PATH=.",
    "a+=b ls",
    "'ls'",
    "l\\s",
    "$SHELL -c ls",
    '"$x" y',
    "l''s",
    "/bin/ls",
    "./ls",
    "./scripts/../evil",
    "gitevil/../x",
    "~/ls",
    "l?",
    "{ls,rm} x",
    "> out.txt rm x",
    "2>&1 rm x",
    "<in rm x",
    "echo 'open",
    'echo "open',
    "echo \\",
    "cat >",
    "ls;#c\nrm x",
    "echo $'\\x41'",
]


@pytest.mark.parametrize("command", ALLOWED)
def test_what_is_plain_to_see_is_allowed(command: str) -> None:
    assert refusal(command, GLOBS) is None


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_not_provably_allowed_is_refused(command: str) -> None:
    """A guard that looks at a command's first word lets everything behind it pass."""
    assert refusal(command, GLOBS) is not None


def test_builtins_that_run_or_redefine_commands_must_be_named() -> None:
    for builtin in ("eval", "exec", "command", "source", ".", "trap", "export", "mapfile"):
        assert refusal(f"{builtin} x", ["e*", "c*", "s*", "?", "t*", "m*"]) is not None
        assert refusal(f"{builtin} x", [builtin]) is None


def test_the_one_star_allows_everything_and_no_glob_nothing() -> None:
    assert refusal("for x in $(rm y); do z; done", ["*"]) is None
    assert refusal("ls", []) is not None


PIECES = st.sampled_from([
    "ls", "evil", "git", " ", "\n", ";", "|", "&", ">", "<", "'", '"', "\\", "$", "(", ")", "{", "}", "`", "#", "x", "=",
    "1", "!", "[", "]", "if", "then", "fi", "EOF", "$(evil)", "2>", "<<<", "<<",
])  # fmt: skip


@settings(deadline=None)  # it starts a real bash
@given(st.lists(PIECES, max_size=12).map("".join))
def test_nothing_that_bash_would_run_slips_through(command: str) -> None:
    """Whatever is allowed, bash itself never gets to start another program: `evil` leaves a mark where it runs."""
    if refusal(command, ["ls", "git"]) is not None or "evil" not in command:
        return
    bash = shutil.which("bash")
    assert bash is not None
    functions = "evil() { echo RAN-EVIL; }; ls() { :; }; git() { :; }; cd /; set -f; exec 3>&1 >/dev/null;"
    mark = functions.replace("echo RAN-EVIL", "echo RAN-EVIL >&3") + "\n" + command.replace(">", "<")
    ran = subprocess.run([bash, "-c", mark], capture_output=True, text=True, timeout=20, check=False)
    assert "RAN-EVIL" not in ran.stdout


def test_bash_of_a_movement_runs_only_what_is_allowed(stage: Stage) -> None:
    """The model is told which programs it may run; a refused command has no effect and names them."""
    piece = stage.piece(
        "narrow",
        {
            "name": "work",
            "allowed_commands": ["echo", "cat"],
            "rules": [{"condition": "x", "next": "COMPLETE"}],
        },
    )
    job_id = stage.play(
        calls(
            call("Bash", command="echo hello > output/a.txt; cat output/a.txt"),
            call("Bash", command="echo hello; touch output/b.txt"),
            call("Bash", command="printf -v PATH /tmp; echo"),
        ),
        go("COMPLETE"),
        piece=piece,
    )
    ran, refused, unknown, _ = stage.results(job_id)
    assert ran == "hello"
    assert (
        refused
        == "Error: Bash was not run: touch is not allowed in this movement. Allowed programs: echo, cat"
    )
    assert "printf is not allowed" in unknown
    assert not (stage.workspace(job_id) / "output/b.txt").exists()
    [bash] = [t for t in stage.endpoint.requests[0].tools if t["function"]["name"] == "Bash"]
    assert "Only these programs may be run: echo, cat." in bash["function"]["description"]


def test_no_builtin_can_make_an_allowed_name_mean_another_program(stage: Stage) -> None:
    """An allowed builtin that sets PATH would turn any allowed name into a script of the workspace."""
    piece = stage.piece(
        "narrow",
        {
            "name": "work",
            "allowed_commands": ["printf", "ls"],
            "rules": [{"condition": "x", "next": "COMPLETE"}],
        },
    )
    job_id = stage.play(
        calls(call("Bash", command="printf -v PATH output; ls input")),
        go("COMPLETE"),
        piece=piece,
        files={"a": b""},
    )
    assert "readonly" in stage.results(job_id)[0]
