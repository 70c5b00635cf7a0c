"""Bash: where a command begins, what it leaves running, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.helpers import call, make_context, make_workspace
from worker.sandbox.base import Level, Sandbox
from worker.tools.base import ToolContext, ToolResult
from worker.tools.bash import _ReportReader


@pytest.fixture
def context(tmp_path: Path, any_sandbox: Sandbox) -> ToolContext:
    return make_context(make_workspace(tmp_path), sandbox=any_sandbox)


def _run(context: ToolContext, command: str, **more: float) -> tuple[ToolContext, ToolResult]:
    """Runs a command, and gives the context of the one after it."""
    result = call(context, "Bash", command=command, **more)
    return (context if result.folder is None else replace(context, folder=result.folder)), result


def test_a_command_begins_where_the_last_one_ended(context: ToolContext) -> None:
    context, result = _run(context, "mkdir -p output/a/b && cd output/a")
    assert result.content == "[the next command begins in /workspace/output/a]"
    context, result = _run(context, "touch here; cd b")
    assert (context.workspace / "output/a/here").exists()
    context, result = _run(context, "cd ..; false")  # also of one that fails
    assert result.is_error
    assert context.folder == "output/a"
    context, result = _run(context, "exec >/dev/null 2>&1; cd b; exit 3")  # whatever it redirects
    assert (context.folder, result.content.splitlines()[0]) == ("output/a/b", "[exit code 3]")
    context, result = _run(context, "ls ..")
    assert result.content == "b\nhere"


def test_what_changes_no_folder(context: ToolContext) -> None:
    context, _ = _run(context, "mkdir output/a; cd output/a")
    for command in (
        "cd /tmp; cd /",
        "(cd ..)",
        "cd ..; exec true",
        "trap 'cd /' EXIT; cd ..",
        "cd ..; kill -9 $$",
        "cd ..; (",
    ):
        assert _run(context, command)[0].folder == "output/a", command
    _, result = _run(context, "cd ..; sleep 60", timeout=1)
    assert "timed out" in result.content
    assert result.folder is None


def test_a_folder_that_is_gone_is_told(context: ToolContext) -> None:
    context, _ = _run(context, "mkdir output/a; cd output/a")
    context, result = _run(context, "cd ..; rmdir a; mkdir b; cd b; rmdir ../b")
    context, result = _run(context, "touch found")
    assert result.content.startswith("[output/b is gone: this command began in the workspace]")
    assert (context.workspace / "found").exists()
    assert context.folder == ""


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path, sandboxed: ToolContext) -> None:
    (tmp_path / "secret").write_text("canary", "utf-8")
    (sandboxed.workspace / "output/link").symlink_to(tmp_path)
    _, result = _run(replace(sandboxed, folder="output/link"), "cat secret; pwd")
    assert "canary" not in result.content


def test_what_is_left_running_is_killed_and_told(context: ToolContext) -> None:
    _, result = _run(context, "sleep 600 & sleep 601 & (sleep 602 &); echo started")
    all_are_seen = context.sandbox is not None and context.sandbox.level is Level.BWRAP
    count = 3 if all_are_seen else 2  # elsewhere the shell knows only of its own
    assert result.content == f"started\n[{count} of its processes were still running, and were killed]"
    assert not result.is_error
    _, result = _run(context, "sleep 0.01 & wait; true | cat; echo done")
    assert result.content == "done"


def test_a_command_finds_a_shell_of_its_own(context: ToolContext) -> None:
    _, result = _run(context, 'echo "$# $0 [$*] $LINENO"\necho $LINENO; declare -p __command 2>/dev/null')
    assert result.content.startswith("0 bash [] 1\n2")
    assert "__command" not in result.content
    _, result = _run(context, "foo_is_none\nif")
    assert "syntax error" in result.content
    _, result = _run(context, "cat <<X\nsum $((1+1))\nX\nprintf end")
    assert result.content == "sum 2\nend"
    for awkward in (
        "set -euf",
        "IFS=/",
        "printf() { echo mine; }",
        "shopt -s extglob nullglob",
        "set -- a b c",
    ):
        context, result = _run(context, f"{awkward}; cd input")
        assert context.folder == "input", (awkward, result.content)
        context, _ = _run(context, "cd ..")


@given(
    st.lists(
        st.sampled_from([b"a", b"\n", b"\nMARK", b"MARK", b"\nMA", b"\nMARK 0 /x\0", b"x" * 9000, b"\n\n"])
    ),
    st.lists(st.integers(1, 7), min_size=1),
    st.booleans(),
)
def test_all_but_the_last_report_is_output(pieces: list[bytes], sizes: list[int], reported: bool) -> None:
    """However the bytes arrive, and whatever in them looks like a report: none is lost, none is doubled."""
    printed = b"".join(pieces)
    data = printed + (b"\nMARK 2 /workspace/a b\0" if reported else b"!")
    output = bytearray()
    reader = _ReportReader(b"MARK", output.extend)
    at = turn = 0
    while at < len(data):
        step = sizes[turn % len(sizes)] ** 4
        reader.feed(data[at : at + step])
        at += step
        turn += 1
    left = reader.end()
    if reported:
        assert left == (2, "/workspace/a b")
        assert bytes(output) == printed
    else:
        assert left == (0, None)
        assert bytes(output) == data
