"""Write and Edit."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.helpers import call, make_context, make_workspace
from worker.tools.base import ToolContext
from worker.tools.encodings import UTF8, Encoding


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return make_context(make_workspace(tmp_path))


def _edit(context: ToolContext, data: bytes, old: str, new: str, **more: bool) -> bytes:
    path = context.workspace / "output/f"
    path.write_bytes(data)
    result = call(context, "Edit", path="output/f", old_string=old, new_string=new, **more)
    assert not result.is_error, result.content
    return path.read_bytes()


def test_write_makes_folders_and_replaces(context: ToolContext) -> None:
    assert "5 bytes" in call(context, "Write", path="output/a/b/c.txt", content="first").content
    call(context, "Write", path="/workspace/output/a/b/c.txt", content="")
    assert (context.workspace / "output/a/b/c.txt").read_bytes() == b""


def test_write_keeps_nul_and_mends_surrogates(context: ToolContext) -> None:
    call(context, "Write", path="output/a", content="\ud83d\ude00 \ud83d \0")
    assert (context.workspace / "output/a").read_text("utf-8") == "😀 \ufffd \0"


@pytest.mark.parametrize(
    "path", ["logs/a", "logs", "./logs/a", "/workspace/logs/a", "../a", "/etc/a", ".", "input"]
)
def test_write_and_edit_refuse(context: ToolContext, path: str) -> None:
    assert call(context, "Write", path=path, content="x").is_error
    assert call(context, "Edit", path=path, old_string="x", new_string="y").is_error
    assert list((context.workspace / "logs").iterdir()) == []


def test_edit_replaces_one_passage(context: ToolContext) -> None:
    assert _edit(context, b"one two three", "two", "2") == b"one 2 three"
    assert _edit(context, b"a a a", "a", "b", replace_all=True) == b"b b b"


def test_edit_refuses_a_passage_that_is_not_unique(context: ToolContext) -> None:
    (context.workspace / "output/f").write_bytes(b"x\ny\nx\n")
    result = call(context, "Edit", path="output/f", old_string="x", new_string="z")
    assert result.is_error
    assert "2 times (lines 1, 3)" in result.content
    assert (context.workspace / "output/f").read_bytes() == b"x\ny\nx\n"


def test_line_ends_come_back_as_they_were(context: ToolContext) -> None:
    """CRLF and mixed endings: matched normalised, written back as they were."""
    assert _edit(context, b"a\r\nb\r\nc\r\n", "a\nb", "A\nB\nnew") == b"A\r\nB\r\nnew\r\nc\r\n"
    assert _edit(context, b"a\r\nb\nc\r\n", "a\nb\nc", "A\nB\nC") == b"A\r\nB\nC\r\n"
    assert _edit(context, b"a\nb\r\nc\n", "b\n", "") == b"a\nc\n"
    assert _edit(context, b"a\r\nb\r\n", "a\r\nb", "x") == b"x\r\n"
    assert _edit(context, b"a\r\nb\r\n", "b", "b\nc") == b"a\r\nb\r\nc\r\n"
    assert _edit(context, b"old\rmac\n", "mac", "pc") == b"old\rpc\n"


@given(
    st.lists(st.sampled_from(["a", "b", "あ", "\n", "\r\n", "\r", "漢"]), max_size=20),
    st.lists(st.sampled_from(["c", "\n", "x"]), max_size=6),
    st.lists(st.sampled_from(["\r\n", "\n", "q"]), max_size=20),
    st.sampled_from(
        [
            UTF8,
            Encoding("UTF-16", "utf-16-le", codecs.BOM_UTF16_LE, 2),
            Encoding("UTF-32", "utf-32-be", codecs.BOM_UTF32_BE, 4),
            Encoding("Shift_JIS", "cp932"),
            Encoding("EUC-JP", "euc_jp"),
        ]
    ),
)
def test_what_is_around_a_passage_stays_byte_for_byte(
    before: list[str], new: list[str], after: list[str], encoding: Encoding
) -> None:
    from worker.tools.edit import _occurrences, document_of, replaced  # the pure part, without files

    head, tail = "".join(before), "".join(after)
    if head.endswith("\r"):
        head += "."
    document = document_of(encoding.bom + f"{head}MARK\r\nER{tail}".encode(encoding.codec), encoding)
    old = "MARK\nER"
    starts = _occurrences(document.normalised, old)
    result = replaced(document, starts, len(old), "".join(new)).removeprefix(encoding.bom)
    result_text = result.decode(encoding.codec)
    assert result_text.startswith(head)
    assert result_text.endswith(tail)
    middle = result_text[len(head) : len(result_text) - len(tail)]
    assert middle.replace("\r\n", "\n") == "".join(new)


def test_encodings_come_back_as_they_were(context: ToolContext) -> None:
    assert _edit(context, codecs.BOM_UTF8 + b"a b", "b", "é") == codecs.BOM_UTF8 + "a é".encode()
    utf16 = codecs.BOM_UTF16_LE + "a b\r\n".encode("utf-16-le")
    assert _edit(context, utf16, "b\n", "漢\n") == codecs.BOM_UTF16_LE + "a 漢\r\n".encode("utf-16-le")
    assert _edit(context, b"caf\xe9 b", "b", "c") == b"caf\xe9 c"


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("def f():\n  return 1", "line 1 differs only in blanks"),
        ("def f():\n    return 2", "is at line 1, but what is around it differs"),
        ("def g():", "the nearest is line 1"),
        ("wholly different", "Read the file first"),
    ],
)
def test_a_near_miss_is_told(context: ToolContext, old: str, told: str) -> None:
    (context.workspace / "output/f").write_text("def f():\n    return 1\n", "utf-8")
    result = call(context, "Edit", path="output/f", old_string=old, new_string="x")
    assert result.is_error
    assert told in result.content


def test_binary_and_equal_strings_are_refused(context: ToolContext) -> None:
    (context.workspace / "output/f").write_bytes(b"a\0b")
    assert "not text" in call(context, "Edit", path="output/f", old_string="a", new_string="b").content
    assert "are the same" in call(context, "Edit", path="output/f", old_string="a", new_string="a").content


@pytest.mark.parametrize("codec", ["cp932", "euc_jp"])
def test_japanese_encodings_are_edited_in_place(context: ToolContext, codec: str) -> None:
    """What is around the passage comes back byte for byte, characters with two codes and damaged bytes included."""
    around = "今日は晴れです。明日の予定を確認する。".encode(codec)
    twice = b"\x87\x9c\xed\x40" if codec == "cp932" else b"\x8f\xa2\xb7"  # each has another code as well
    filler = around * 2000 + b"\xff" + around  # damaged beyond what is looked at to tell the encoding
    data = around + twice + b"\r\n" + filler + "古い値".encode(codec) + b"\r\n" + twice + b"\xff" + around
    edited = _edit(context, data, "古い値\n", "新しい値\n追加\n")
    assert edited == data.replace("古い値".encode(codec), "新しい値\r\n追加".encode(codec))


def test_what_an_encoding_lacks_is_refused_and_the_file_stays(context: ToolContext) -> None:
    data = "今日は晴れです。\n".encode("cp932")
    (context.workspace / "output/f").write_bytes(data)
    result = call(context, "Edit", path="output/f", old_string="晴れ", new_string="☀🎉")
    assert result.is_error
    assert "is in Shift_JIS, which has no" in result.content
    assert (context.workspace / "output/f").read_bytes() == data
