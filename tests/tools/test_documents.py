"""ReadPdf and ReadOffice: what they say of good documents, and of bad ones."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import openpyxl  # type: ignore[import-untyped]  # no types published
import pptx
import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.text import clean_text
from tests.tools.helpers import call, make_context, make_workspace
from worker.cancel import Cancelled, CancelToken
from worker.sandbox.base import Sandbox
from worker.tokens import estimate_tokens
from worker.tools.base import ToolContext
from worker.tools.decoder import CannotDecode
from worker.tools.documents import _Document


def pdf_of(*pages: str, image: bool = False) -> bytes:
    """A PDF with a page for each text; an empty one has no text, with `image` only a picture."""
    objects: list[bytes] = [b"", b""]  # the catalogue and the pages come last
    kids = []
    for text in pages:
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in text.split("\n")) if text else ""
        content = f"BT /F1 12 Tf 20 750 Td {lines}ET".encode() if text else b"/I Do" if image else b""
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        resources = b"/Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
        if image:
            resources += b" /XObject << /I << /Type /XObject /Subtype /Image /Width 1 /Height 1 >> >>"
        kids.append(len(objects) + 1)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources << %s >> >>"
            % (len(objects), resources)
        )
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    refs = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (refs, len(kids))
    data = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(data)
    size = len(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return data + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, start)


def docx_of(*paragraphs: str, table: list[list[str]] | None = None) -> bytes:
    document = docx.Document()
    document.add_heading("The heading", 2)
    for text in paragraphs:
        document.add_paragraph(text)
    if table:
        made = document.add_table(len(table), len(table[0]))
        for row, cells in enumerate(table):
            for column, text in enumerate(cells):
                made.cell(row, column).text = text
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def xlsx_of(**sheets: list[list[Any]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def pptx_of(*slides: tuple[str, str]) -> bytes:
    presentation = pptx.Presentation()
    for title, notes in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        slide.shapes.title.text = title
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    buffer = io.BytesIO()
    presentation.save(buffer)
    return buffer.getvalue()


def _put(context: ToolContext, data: bytes) -> ToolContext:
    (context.workspace / "input/doc").write_bytes(data)
    return context


def _refused(context: ToolContext, tool: str, data: bytes, **arguments: Any) -> str:
    result = call(_put(context, data), tool, path="input/doc", **arguments)
    assert result.is_error, result.content
    assert result.content.startswith("Error: 'input/doc' cannot be read: ")
    assert str(context.workspace) not in result.content
    return result.content


# --- good documents ---


def test_a_pdf_is_read_by_pages(tmp_path: Path, any_sandbox: Sandbox) -> None:
    context = _put(
        make_context(make_workspace(tmp_path), sandbox=any_sandbox),
        pdf_of("First page", "", "Third\nof three"),
    )
    assert call(context, "ReadPdf", path="input/doc").content == (
        "[PDF document, 3 pages]\n--- page 1 ---\nFirst page\n--- page 2 ---\n[an empty page]\n"
        "--- page 3 ---\nThird\nof three"
    )
    one = call(context, "ReadPdf", path="input/doc", first=3, last=3).content
    assert one == "[PDF document, 3 pages]\n--- page 3 ---\nThird\nof three"
    assert call(context, "ReadPdf", path="input/doc", first=4).content == "Error: it has only 3 pages"
    assert "last is before" in call(context, "ReadPdf", path="input/doc", first=2, last=1).content


def test_a_scanned_page_is_called_one(sandboxed: ToolContext) -> None:
    content = call(_put(sandboxed, pdf_of("", image=True)), "ReadPdf", path="input/doc").content
    assert "[no text on this page, only 1 images: probably a scan]" in content


def test_a_pdf_that_only_forbids_printing_is_read(sandboxed: ToolContext) -> None:
    for password, readable in (("", True), ("secret", False)):
        writer = pypdf.PdfWriter(io.BytesIO(pdf_of("Words")))
        writer.encrypt(password, "owner", algorithm="RC4-128")
        buffer = io.BytesIO()
        writer.write(buffer)
        if readable:
            assert "Words" in call(_put(sandboxed, buffer.getvalue()), "ReadPdf", path="input/doc").content
        else:
            assert "needs a password" in _refused(sandboxed, "ReadPdf", buffer.getvalue())


def test_a_word_document_is_read_by_lines(tmp_path: Path, any_sandbox: Sandbox) -> None:
    context = make_context(make_workspace(tmp_path), sandbox=any_sandbox)
    data = docx_of("今日は", "", "two\nlines", table=[["a", "b\nc"], ["", "d"]])
    assert call(_put(context, data), "ReadOffice", path="input/doc").content == (
        "[Word document]\n## The heading\n今日は\ntwo\nlines\n| a | b c |\n|  | d |"
    )


def test_a_workbook_is_read_by_sheets_and_rows(tmp_path: Path, any_sandbox: Sandbox) -> None:
    context = make_context(make_workspace(tmp_path), sandbox=any_sandbox)
    data = xlsx_of(売上=[["name", 1, None, 2.5], [], ["=B1*2", True]], Other=[[n] for n in range(1, 50)])
    content = call(_put(context, data), "ReadOffice", path="input/doc").content
    assert content == (
        "[Excel workbook, sheets: '売上', 'Other'; this is '売上']\n1\tname\t1\t\t2.5\n3\t=B1*2\tTrue"
    )
    rows = call(context, "ReadOffice", path="input/doc", sheet="Other", first=7, last=8).content
    assert rows.endswith("this is 'Other']\n7\t7\n8\t8")
    missing = _refused(context, "ReadOffice", data, sheet="None")
    assert "no sheet 'None'; its sheets: '売上', 'Other'" in missing


def test_a_presentation_is_read_by_slides(tmp_path: Path, any_sandbox: Sandbox) -> None:
    context = make_context(make_workspace(tmp_path), sandbox=any_sandbox)
    data = pptx_of(("Hello", "Say it slowly"), ("World", ""))
    assert call(_put(context, data), "ReadOffice", path="input/doc").content == (
        "[presentation, 2 slides]\n--- slide 1 ---\nHello\nNotes: Say it slowly\n--- slide 2 ---\nWorld"
    )


# --- reading on ---


def read_on(context: ToolContext, tool: str) -> str:
    """A document put together from its parts by following the hints; heads and frames are left out."""
    arguments: dict[str, Any] = {}
    text = ""
    for _ in range(1000):
        content = call(context, tool, path="input/doc", **arguments).content
        assert estimate_tokens(content) <= context.budget_tokens
        cut = re.search(
            r"\n\[cut: more follows\. Read on with first=(\d+)(?: char_offset=(\d+))?\]\Z", content
        )
        part = content[: cut.start()] if cut else content
        text += part.partition("]\n")[2] + ("" if cut and cut[2] else "\n")
        if cut is None:
            return text
        following = {"first": int(cut[1])} | ({"char_offset": int(cut[2])} if cut[2] else {})
        assert following != arguments, "the hint does not move forward"
        arguments = following
    raise AssertionError("the hints never end")


_TEXTS = st.lists(
    st.one_of(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Co", "Cn"]),
            min_size=1,
            max_size=60,
        ),
        st.sampled_from(["日本語の文" * 60, "x" * 4000, "word " * 200 + "end", "🎉" * 300, "short"]),
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=12, deadline=None)
@given(texts=_TEXTS, budget=st.integers(250, 1200))
def test_following_the_hints_gives_every_line_of_a_document(
    tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox, texts: list[str], budget: int
) -> None:
    """Long paragraphs are cut inside: nothing is lost or repeated."""
    workspace = make_workspace(tmp_path_factory.mktemp("read-on"))
    context = _put(make_context(workspace, budget=budget, sandbox=session_sandbox), docx_of(*texts))
    assert read_on(context, "ReadOffice") == clean_text("".join(f"{t}\n" for t in ("## The heading", *texts)))


@settings(max_examples=12, deadline=None)
@given(texts=_TEXTS, budget=st.integers(250, 1200))
def test_following_the_hints_gives_every_row_of_a_workbook(
    tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox, texts: list[str], budget: int
) -> None:
    texts = [f"t{text}" for text in texts]  # no formula
    workspace = make_workspace(tmp_path_factory.mktemp("read-on"))
    data = xlsx_of(Sheet=[[n, text] for n, text in enumerate(texts)])
    context = _put(make_context(workspace, budget=budget, sandbox=session_sandbox), data)
    expected = "".join(f"{n + 1}\t{n}\t{text}\n" for n, text in enumerate(texts))
    assert read_on(context, "ReadOffice") == expected


def test_hints_keep_the_sheet_and_the_end(sandboxed: ToolContext) -> None:
    data = xlsx_of(A=[["x"]], B=[[f"row {n} " + "long " * 40] for n in range(1, 60)])
    small = make_context(sandboxed.workspace, budget=400, sandbox=sandboxed.sandbox)
    content = call(_put(small, data), "ReadOffice", path="input/doc", sheet="B", last=40).content
    assert re.search(r"Read on with first=\d+ last=40 sheet='B'\]\Z", content)


# --- bad documents ---


def _zip(parts: dict[str, bytes], **more: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **more) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _with_part(data: bytes, name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    return _zip(parts | {name: content})


def test_a_zip_bomb_is_refused_before_it_is_unpacked(sandboxed: ToolContext) -> None:
    bomb = _with_part(docx_of("x"), "word/media/big.bin", b"\0" * (150 << 20))
    assert "it would unpack to" in _refused(sandboxed, "ReadOffice", bomb)
    many = _with_part(docx_of("x"), "word/media/big.bin", b"\0" * (201 << 20))
    assert "too much" in _refused(sandboxed, "ReadOffice", many)


def test_a_zip_that_lies_about_its_sizes_is_refused(sandboxed: ToolContext) -> None:
    """The directory says that the document has 10 bytes."""
    data = bytearray(_with_part(docx_of("x"), "word/document.xml", b"<w>" + b"\0" * (60 << 20) + b"</w>"))
    at = data.rindex(b"word/document.xml") - 46
    assert data[at : at + 4] == b"PK\x01\x02"
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    assert "damaged" in _refused(sandboxed, "ReadOffice", bytes(data))


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_xml_that_defines_entities_is_refused(sandboxed: ToolContext, codec: str) -> None:
    lol = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    evil = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "lol">{lol}<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&l9;&f;</x>'
    for data, part in ((docx_of("x"), "word/document.xml"), (xlsx_of(A=[["x"]]), "xl/workbook.xml")):
        assert "defines entities" in _refused(
            sandboxed, "ReadOffice", _with_part(data, part, evil.encode(codec))
        )


def test_a_page_that_unpacks_without_end_is_refused(sandboxed: ToolContext) -> None:
    """A stream of 600 MB of operators in a PDF of less than a megabyte."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"q Q " * (1 << 18)) for _ in range(600)) + packer.flush()
    data = pdf_of("x")
    content = re.search(rb"<< /Length \d+ >>\nstream\n.*?\nendstream", data, re.DOTALL)
    assert content is not None
    bomb = b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed)
    result = call(_put(sandboxed, data.replace(content[0], bomb)), "ReadPdf", path="input/doc")
    assert "cannot be read" in result.content


@pytest.mark.parametrize(
    ("tool", "data", "told"),
    [
        ("ReadPdf", b"plain text", "it is no PDF document"),
        ("ReadPdf", b"%PDF-1.7\ngarbage", "damaged"),
        ("ReadPdf", pdf_of("x")[:200], "damaged"),
        ("ReadOffice", b"plain text", "no office document"),
        ("ReadOffice", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "encrypted, or of the old kind"),
        ("ReadOffice", _zip({"a.txt": b"hello"}), "a zip archive, but no DOCX"),
        ("ReadOffice", docx_of("x")[:3000], "damaged"),
        ("ReadOffice", _zip({"word/document.xml": b"<x/>"}), "damaged"),
        ("ReadOffice", _with_part(docx_of("x"), "word/document.xml", b"<w><unclosed>"), "damaged"),
        ("ReadOffice", pdf_of("x"), "no office document"),
    ],
)
def test_what_cannot_be_read_is_told(sandboxed: ToolContext, tool: str, data: bytes, told: str) -> None:
    assert told in _refused(sandboxed, tool, data)


def test_paths_are_those_of_every_tool(tmp_path: Path, sandboxed: ToolContext) -> None:
    """Links that lead outside, FIFOs, `..`: the child gets an opened file, never a path."""
    (tmp_path / "secret.pdf").write_bytes(pdf_of("canary"))
    (sandboxed.workspace / "input/link").symlink_to(tmp_path / "secret.pdf")
    (sandboxed.workspace / "input/empty").touch()
    for path, told in (
        ("input/link", "symbolic link"),
        ("../secret.pdf", "'..'"),
        ("input/empty", "is empty"),
    ):
        for tool in ("ReadPdf", "ReadOffice", "ReadImage"):
            result = call(sandboxed, tool, path=path)
            assert result.is_error
            assert told in result.content


def test_without_a_sandbox_nothing_is_opened(tmp_path: Path) -> None:
    context = _put(make_context(make_workspace(tmp_path)), pdf_of("x"))
    assert "no sandbox" in call(context, "ReadPdf", path="input/doc").content


def test_a_cancel_ends_the_child(sandboxed: ToolContext) -> None:
    cancel = CancelToken()
    context = make_context(_put(sandboxed, pdf_of("x")).workspace, sandbox=sandboxed.sandbox, cancel=cancel)
    cancel.cancel("cancel")
    with pytest.raises(Cancelled):
        call(context, "ReadPdf", path="input/doc")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"what": 1, "unit": "page", "total": 1}],
        [{"what": "x", "unit": "page", "total": 1}, {"n": 1, "text": None}],
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(lines: list[dict[str, Any]]) -> None:
    def answers() -> Iterator[dict[str, Any]]:
        yield from lines

    with pytest.raises(CannotDecode):
        _Document(answers())
