"""Read: exact text, and hints that lose and repeat nothing."""

from __future__ import annotations

import codecs
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.text import clean_text
from tests.tools.helpers import call, make_context, make_workspace, read_all
from worker.tokens import estimate_tokens
from worker.tools.encodings import encoding_of, shown_undecoded
from worker.tools.sniff import BinaryFile

_LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40),
        st.sampled_from(["日本語の文" * 60, "x" * 3000, "a b " * 300, "\r", "", "é" * 500, "🎉" * 200]),
    ),
    min_size=1,
    max_size=30,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path)


@settings(max_examples=120, deadline=None)
@given(lines=_LINES, ends=st.sampled_from(["\n", "\r\n"]), budget=st.integers(120, 900))
def test_following_the_hints_gives_the_file_back(lines: list[str], ends: str, budget: int) -> None:
    """One very long line, CJK, CRLF: every continuation hint moves forward; nothing is lost or repeated."""
    text = ends.join(lines)
    data = text.encode()
    if not data or data.startswith(codecs.BOM_UTF8):
        return
    folder = Path(tempfile.mkdtemp())
    try:
        context = make_context(make_workspace(folder, a_txt=b"plain start\n" + data), budget=budget)
        assert read_all(context, "input/a.txt") == "plain start\n" + text
        assert read_all(context, "input/a.txt", byte_offset=12) == text
    finally:
        shutil.rmtree(folder)


_PIECES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        ["日本語の文" * 60, "表示能力ソ\\" * 40, "x" * 3000, "ｱｲｳ", "é" * 500, "🎉" * 100, "\r", ""]
    ),
)


@settings(max_examples=120, deadline=None)
@given(
    codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
    | st.sampled_from(["cp932", "euc_jp", "cp1252"]),
    pieces=st.lists(_PIECES | st.binary(max_size=6), min_size=1, max_size=25),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    budget=st.integers(150, 900),
)
def test_following_the_hints_gives_back_any_file_in_any_encoding(
    codec: str, pieces: list[str | bytes], ends: str, budget: int
) -> None:
    """Every encoding, with bytes in between that are none of it: nothing is lost or repeated, by lines or by bytes."""
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    marks |= {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}
    end = ends.encode("utf-8" if codec == "utf-8-sig" else codec)
    data = (
        marks.get(codec, b"")
        + "今日は晴れです。明日の予定\n".encode(codec, "replace")
        + end.join(piece if isinstance(piece, bytes) else piece.encode(codec, "replace") for piece in pieces)
    )
    with tempfile.TemporaryDirectory() as folder:
        workspace = make_workspace(Path(folder), a_txt=data)
        with (workspace / "input/a.txt").open("rb") as file:
            try:
                encoding = encoding_of(file)
            except BinaryFile:  # NUL, or little else than control characters
                return
        text = clean_text(shown_undecoded(encoding.decode(data[len(encoding.bom) :])))
        context = make_context(workspace, budget=budget)
        assert read_all(context, "input/a.txt") == text
        assert read_all(context, "input/a.txt", byte_offset=0) == text
        assert read_all(context, "input/a.txt", offset=1, limit=3) == text


_JAPANESE = "名前,年齢,住所\n田中,30,東京都千代田区\n"


@pytest.mark.parametrize(
    ("text", "codec", "label"),
    [
        ("今日は晴れです。\n", "cp932", "Shift_JIS"),
        ("日本語", "cp932", "Shift_JIS"),
        (_JAPANESE, "cp932", "Shift_JIS"),
        ("ｱｲｳｴｵ 半角\n", "cp932", "Shift_JIS"),
        ("# 設定値を読み込む\nx = 1\n" * 500, "cp932", "Shift_JIS"),
        ("plain ascii\n" * 20_000 + "最後に日本語\n", "cp932", "Shift_JIS"),
        ("plain ascii " * 20_000 + "最後に日本語", "euc_jp", "EUC-JP"),
        ("日本語\n", "euc_jp", "EUC-JP"),
        (_JAPANESE * 5000, "euc_jp", "EUC-JP"),
        ("Größe über Straße\n", "cp1252", "Windows-1252"),
        ("日本語 🎉\n", "utf-16", "UTF-16"),
        ("日本語 🎉\n", "utf-32", "UTF-32"),
    ],
)
def test_an_encoding_is_told_from_the_text(workspace: Path, text: str, codec: str, label: str) -> None:
    (workspace / "a").write_bytes(text.encode(codec))
    context = make_context(workspace, budget=50_000)
    tail = call(context, "Read", path="a", byte_offset=max(len(text.encode(codec)) - 500, 0)).content
    assert tail.endswith(f"\n[the file is in {label}]")
    assert "\ufffd" not in tail
    assert read_all(context, "a") == text


def test_a_text_in_utf_8_with_a_few_bad_bytes_stays_utf_8(workspace: Path) -> None:
    (workspace / "a").write_bytes("日本語のログ".encode() * 50 + b"\xff\xfe" + "続き".encode())
    assert call(make_context(workspace), "Read", path="a").content.endswith("ログ\ufffd\ufffd続き")


def test_byte_ranges(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"0123456789" * 100)
    part = call(make_context(workspace), "Read", path="a", byte_offset=10, byte_limit=20).content
    assert part.startswith(
        "01234567890123456789\n[cut: 970 of 1000 bytes follow. Read on with byte_offset=30,"
    )


@settings(max_examples=60, deadline=None)
@given(lines=_LINES, budget=st.integers(150, 900))
def test_an_answer_stays_within_its_budget(lines: list[str], budget: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        workspace = make_workspace(folder, a_txt=b"plain start\n" + "\n".join(lines).encode())
        result = call(make_context(workspace, budget=budget), "Read", path="input/a.txt")
        assert estimate_tokens(result.content) <= budget
    finally:
        shutil.rmtree(folder)


def test_a_long_file_is_cut_at_a_line_and_says_where_it_goes_on(workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"line {at}\n" for at in range(1, 2001)), "utf-8")
    result = call(make_context(workspace, budget=300), "Read", path="a")
    shown, _, hint = result.content.rpartition("\n[cut: ")
    last = shown.splitlines()[-1].split()[1]
    assert shown.endswith("\n")
    assert f"Read on with offset={int(last) + 1}," in hint
    assert call(make_context(workspace), "Read", path="a", offset=int(last) + 1, limit=1).content.startswith(
        f"line {int(last) + 1}\n"
    )


def test_one_very_long_line_is_cut_by_bytes(workspace: Path) -> None:
    text = '{"k": "' + "漢字v" * 50_000 + '"}'
    (workspace / "a.json").write_text(text, "utf-8")
    context = make_context(workspace, budget=2000)
    assert "Read on with byte_offset=" in call(context, "Read", path="a.json").content
    assert read_all(context, "a.json") == text


def test_a_byte_offset_inside_a_character_starts_with_that_character(workspace: Path) -> None:
    (workspace / "a").write_text("aé漢🎉z", "utf-8")
    context = make_context(workspace)
    starts = [call(context, "Read", path="a", byte_offset=at).content[0] for at in range(11)]
    assert starts == list("aéé漢漢漢🎉🎉🎉🎉z")


def test_a_text_with_a_bom_in_utf_16_is_transcoded(workspace: Path) -> None:
    text = "日本\r\nline 2\n" * 500
    for encoding, bom in (("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)):
        (workspace / "a").write_bytes(bom + text.encode(encoding))
        assert read_all(make_context(workspace, budget=500), "a") == text


def test_a_utf_8_bom_is_not_shown(workspace: Path) -> None:
    (workspace / "a").write_bytes(codecs.BOM_UTF8 + b"text")
    assert call(make_context(workspace), "Read", path="a").content == "text"


@pytest.mark.parametrize(
    ("data", "what", "helps"),
    [
        (b"\x7fELF\x02\x01\x01" + b"\0" * 50, "ELF", "strings"),
        (b"abc\0def", "binary", "xxd"),
        (b"%PDF-1.7\n", "PDF", "ReadPdf"),
        (b"PK\x03\x04", "zip", "ReadOffice"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "WebP", "ReadImage"),
        (b"\x1f\x8b\x08", "gzip", "zcat"),
        (bytes(range(1, 32)) * 10, "binary", "Bash"),
    ],
)
def test_binary_files_are_refused_with_a_hint(workspace: Path, data: bytes, what: str, helps: str) -> None:
    """An ELF named notes.txt."""
    (workspace / "notes.txt").write_bytes(data)
    result = call(make_context(workspace), "Read", path="notes.txt")
    assert result.is_error
    assert what in result.content
    assert helps in result.content


def test_mistakes_are_told(workspace: Path) -> None:
    (workspace / "a").write_text("1\n2\n3", "utf-8")
    (workspace / "empty").touch()
    context = make_context(workspace)
    assert "only 3 lines" in call(context, "Read", path="a", offset=9).content
    assert "ends at byte 5" in call(context, "Read", path="a", byte_offset=99).content
    assert "not both" in call(context, "Read", path="a", offset=1, byte_offset=1).content
    assert "does not exist" in call(context, "Read", path="b").content
    assert "is a folder" in call(context, "Read", path="input").content
    assert call(context, "Read", path="empty").content == "[the file is empty]"


def test_paths_as_commands_see_them_are_understood(workspace: Path) -> None:
    (workspace / "a").write_text("text", "utf-8")
    context = make_context(workspace)
    for path in ("a", "./a", "/workspace/a", f"{workspace}/a", "/workspace//a"):
        assert call(context, "Read", path=path).content == "text"
    for path in ("/workspace-evil/a", f"{workspace}-evil/a", "/workspace/../a", "/etc/passwd"):
        assert call(context, "Read", path=path).is_error
