"""Glob and Grep."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.tools.helpers import call, make_context, make_workspace
from worker.cancel import Cancelled, CancelToken
from worker.tools.base import ToolContext
from worker.tools.patterns import glob_expression


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "secret").write_text("needle", "utf-8")
    root = make_workspace(tmp_path, a_py=b"import os\nneedle = 1\n", b_txt=b"one\r\nneedle\r\nthree\r\n")
    (root / "output/deep/er").mkdir(parents=True)
    (root / "output/deep/er/c.py").write_text("x\nneedle\ny\n" * 3, "utf-8")
    (root / "output/.git/objects").mkdir(parents=True)
    (root / "output/.git/objects/o").write_text("needle", "utf-8")
    (root / "output/prog").write_bytes(b"\x7fELF needle")
    (root / "output/link").symlink_to(tmp_path / "secret")
    (root / "output/folder").symlink_to(tmp_path)
    os.mkfifo(root / "output/fifo")
    return make_context(root)


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("*.py", ["a.py", ".py"], ["d/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "d/e/a.py"], ["a.txt"]),
        ("d/**", ["d/a", "d/e/f"], ["e/d"]),
        ("a?[0-9].{c,h}", ["ab1.c", "ab2.h"], ["a1.c", "ab1.o", "a/1.c"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
        ("{a", ["{a"], ["a"]),
    ],
)
def test_globs(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    expression = glob_expression(pattern)
    assert [path for path in fits if not expression.fullmatch(path.encode())] == []
    assert [path for path in fits_not if expression.fullmatch(path.encode())] == []


def test_glob_lists_files_and_follows_no_link(context: ToolContext) -> None:
    assert call(context, "Glob", pattern="*.py").content.split() == [
        "input/a.py",
        "21",
        "output/deep/er/c.py",
        "33",
    ]
    assert call(context, "Glob", pattern="er/*", path="output/deep").content.startswith("output/deep/er/c.py")
    everything = call(context, "Glob", pattern="*").content
    assert "output/link\tlink" in everything
    assert "secret" not in everything
    assert ".git/" not in everything
    assert "objects/o" in call(context, "Glob", pattern="**/.git/**").content
    assert call(context, "Glob", pattern="*.rs").content == "No files fit."


def test_glob_pages_lose_and_repeat_nothing(context: ToolContext) -> None:
    for at in range(300):
        (context.workspace / f"output/deep/{at:03}.dat").touch()
    small = make_context(context.workspace, budget=500)
    found: list[str] = []
    offset = 0
    while True:
        content = call(small, "Glob", pattern="*.dat", offset=offset).content
        found += [line.split("\t")[0] for line in content.splitlines() if "\t" in line]
        hint = re.search(r"offset=(\d+)\]", content)
        if hint is None:
            break
        assert int(hint[1]) > offset
        offset = int(hint[1])
    assert found == [f"output/deep/{at:03}.dat" for at in range(300)]


def test_grep_finds_lines_in_text_files_only(context: ToolContext) -> None:
    assert call(context, "Grep", pattern="needle").content.splitlines() == [
        "input/a.py:2:needle = 1",
        "input/b.txt:2:needle",
        "output/deep/er/c.py:2:needle",
        "output/deep/er/c.py:5:needle",
        "output/deep/er/c.py:8:needle",
    ]
    assert call(context, "Grep", pattern="^needle$", glob="*.txt").content == "input/b.txt:2:needle\n"
    assert call(
        context, "Grep", pattern="NEEDLE", ignore_case=True, path="input", files_only=True
    ).content == ("input/a.py\ninput/b.txt\n")
    assert (
        call(context, "Grep", pattern=r"\Aneedle\z", path="input/b.txt").content == "input/b.txt:2:needle\n"
    )
    assert call(context, "Grep", pattern="absent").content == "No line fits."


def test_grep_shows_context_without_repeating_lines(context: ToolContext) -> None:
    content = call(context, "Grep", pattern="needle", path="output/deep/er/c.py", context=1).content
    assert [line.removeprefix("output/deep/er/c.py") for line in content.splitlines()] == [
        "-1-x", ":2:needle", "-3-y", "-4-x", ":5:needle", "-6-y", "-7-x", ":8:needle", "-9-y",
    ]  # fmt: skip
    (context.workspace / "output/far").write_text("hit\n" + "-\n" * 9 + "hit\n", "utf-8")
    far = call(context, "Grep", pattern="hit", path="output/far", context=1).content.splitlines()
    assert far == ["output/far:1:hit", "output/far-2--", "--", "output/far-10--", "output/far:11:hit"]


def test_a_long_line_is_shown_around_the_match_and_read_can_go_there(context: ToolContext) -> None:
    text = "first\n" + "漢" * 70_000 + "needle" + "字" * 1000
    (context.workspace / "output/long").write_text(text, "utf-8")
    content = call(context, "Grep", pattern="needle", path="output/long").content
    assert len(content) < 1000
    assert "\ufffd" not in content
    place = re.search(r"byte_offset=(\d+)", content)
    assert place is not None
    assert "needle" in call(context, "Read", path="output/long", byte_offset=int(place[1])).content[:200]


def test_grep_is_linear_and_says_what_it_cannot(context: ToolContext) -> None:
    (context.workspace / "output/evil").write_text("a" * 50_000 + "\n", "utf-8")
    assert call(context, "Grep", pattern="(a*)*b", path="output/evil").content == "No line fits."
    for pattern in ("(?=x)", r"(a)\1", "(", "\ud800"):
        result = call(context, "Grep", pattern=pattern)
        assert result.is_error
        assert "RE2" in result.content


@pytest.mark.parametrize(
    "path", ["output/link", "output/folder", "output/fifo", "output/prog", "../..", "absent"]
)
def test_what_is_asked_for_by_name_and_refused_is_told(context: ToolContext, path: str) -> None:
    assert call(context, "Grep", pattern="needle", path=path).is_error


def test_a_cancelled_search_stops(context: ToolContext) -> None:
    cancel = CancelToken()
    context = make_context(context.workspace, cancel=cancel)
    cancel.cancel("cancel")
    for name in ("Glob", "Grep", "Read", "Write", "Edit", "Bash"):
        with pytest.raises(Cancelled):
            call(context, name)


def test_what_gitignore_leaves_out_is_not_searched(context: ToolContext) -> None:
    root = context.workspace / "output"
    files = [
        "a.log",
        "keep.log",
        "build/x.py",
        "sub/build/y.py",
        "sub/top.py",
        "top.py",
        "sub/inner/a.tmp",
        "odd[z-a]",
    ]
    for name in files:
        (root / "deep" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "deep" / name).write_text("haystack\n", "utf-8")
    (root / "deep/.gitignore").write_text(
        "# rules\n*.log\n!keep.log\nbuild/\n/top.py\n[z-a]\n*.tmp\n", "utf-8"
    )
    (root / "deep/sub/.gitignore").write_text("!a.tmp\n", "utf-8")

    def found(**more: object) -> list[str]:
        content = call(context, "Grep", pattern="haystack", files_only=True, **more).content
        return [
            line.removeprefix("output/deep/") for line in content.splitlines() if not line.startswith("[")
        ]

    assert found() == ["keep.log", "odd[z-a]", "sub/inner/a.tmp", "sub/top.py"]
    assert "[4 left out by .gitignore; ignored=true" in call(context, "Grep", pattern="haystack").content
    assert found(ignored=True) == sorted(files)
    assert found(path="output/deep/build") == ["build/x.py"]  # asked for by name
    assert found(path="output/deep/sub") == ["sub/inner/a.tmp", "sub/top.py"]
    listed = call(context, "Glob", pattern="**/*.py", path="output/deep").content
    assert "top.py" in listed
    assert "build" not in listed
    assert "build/x.py" in call(context, "Glob", pattern="**/*.py", ignored=True).content


def test_a_hostile_gitignore_takes_no_time_and_leads_nowhere(context: ToolContext, tmp_path: Path) -> None:
    """Rules that back-track, a link to a file outside, a folder, a FIFO in its place."""
    root = context.workspace / "output"
    (root / ".gitignore").write_text(("*a" * 40 + "b\n") * 50, "utf-8")
    (root / ("a" * 250)).write_text("haystack", "utf-8")
    (tmp_path / "rules").write_text("*\n", "utf-8")
    for name, plant in (("l", "link"), ("d", "folder"), ("f", "fifo")):
        (root / name).mkdir()
        (root / name / "x").write_text("haystack", "utf-8")
        if plant == "link":
            (root / name / ".gitignore").symlink_to(tmp_path / "rules")
        elif plant == "folder":
            (root / name / ".gitignore").mkdir()
        else:
            os.mkfifo(root / name / ".gitignore")
    content = call(context, "Grep", pattern="haystack", files_only=True).content
    assert content.splitlines() == [f"output/{'a' * 250}", "output/d/x", "output/f/x", "output/l/x"]


@pytest.mark.parametrize("codec", ["cp932", "euc_jp", "utf-16", "utf-32"])
def test_grep_finds_japanese_in_its_encodings_and_read_can_go_there(context: ToolContext, codec: str) -> None:
    text = "今日は晴れです。\n" + "明日の予定を確認する" * 3000 + "探し物" + "終わり" * 500 + "\n探し物\n"
    (context.workspace / "output/jp").write_bytes(text.encode(codec))
    content = call(context, "Grep", pattern="探し物", path="output/jp").content
    assert content.endswith("output/jp:3:探し物\n")
    place = re.search(r"byte_offset=(\d+)", content)
    assert place is not None
    assert "探し物" in call(context, "Read", path="output/jp", byte_offset=int(place[1])).content[:120]
