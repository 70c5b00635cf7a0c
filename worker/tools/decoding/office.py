"""DOCX, XLSX and PPTX: their text, by paragraphs, rows and slides. The kind is told by what the archive holds."""

from __future__ import annotations

import datetime as dt
import itertools
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from worker.tools.decoding.refused import Full, Refused, Writer

_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MOST_PARTS = 10_000
_MOST_BYTES = 200 << 20  # unpacked
_MOST_TIMES = 300  # unpacked, as a multiple of the archive
_SMALL = 20 << 20
_PROLOG = 1 << 16
_MOST_CELLS = 1000
_MOST_NESTED = 20
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def read(request: dict[str, Any], file: BinaryIO, out: BinaryIO) -> None:
    """Writes the units from `first` on."""
    head = file.read(8)
    if head == _OLD_OFFICE:
        raise Refused("it is encrypted, or of the old kind (DOC, XLS, PPT); DOCX, XLSX and PPTX can be read")
    if not head.startswith(b"PK"):
        raise Refused("it is no office document (DOCX, XLSX, PPTX)")
    names = _checked_names(file)
    file.seek(0)
    writer = Writer(request, out)
    try:
        if "word/document.xml" in names:
            _read_docx(file, writer)
        elif "xl/workbook.xml" in names:
            _read_xlsx(file, writer, request["sheet"])
        elif "ppt/presentation.xml" in names:
            _read_pptx(file, writer)
        else:
            raise Refused("it is a zip archive, but no DOCX, XLSX or PPTX")
    except Full:
        return
    writer.end()


def _checked_names(file: BinaryIO) -> set[str]:
    """The archive's parts; refuses what would unpack to far more than it is, and what defines entities."""
    packed = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        unpacked = sum(part.file_size for part in parts)
        if len(parts) > _MOST_PARTS or unpacked > _MOST_BYTES:
            raise Refused(f"it would unpack to {unpacked} bytes in {len(parts)} parts, which is too much")
        if unpacked > max(_SMALL, packed * _MOST_TIMES):
            raise Refused(f"it would unpack to {unpacked} bytes, {unpacked // packed} times its size")
        for part in parts:
            if part.flag_bits & 1:
                raise Refused("it is encrypted")
            if part.filename.endswith((".xml", ".rels")):
                with archive.open(part) as opened:
                    _refuse_entities(opened.read(_PROLOG))
        return {part.filename for part in parts}


def _refuse_entities(prolog: bytes) -> None:
    """Office documents have no document type; one that has defines entities, to fetch files or to grow without end."""
    for mark in ("<!DOCTYPE", "<!ENTITY"):
        if any(mark.encode(codec) in prolog for codec in ("ascii", "utf-16-le", "utf-16-be")):
            raise Refused("its XML defines entities, which no office document needs")


# --- DOCX ---


def _read_docx(file: BinaryIO, writer: Writer) -> None:
    import docx

    writer.head("Word document", "line", None)
    _write_all(writer, _docx_lines(docx.Document(file)))


def _docx_lines(document: Any) -> Iterator[str]:
    """A line a paragraph, headings marked as in Markdown; a line a table row. Empty ones are left out."""
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block._tbl.tr_lst:
                cells = [" ".join(_cell_text(cell).split()) for cell in row.tc_lst]
                if any(cells):
                    yield "| " + " | ".join(cells) + " |"
            continue
        text = block.text
        if text.strip():
            style = str(getattr(block.style, "name", None) or "")
            level = style.removeprefix("Heading ")
            yield f"{'#' * int(level)} {text}" if style != level and level in "123456789" else text


def _cell_text(cell: Any) -> str:
    nodes = cell.iter(f"{_W}p", f"{_W}t", f"{_W}br", f"{_W}tab")
    return "".join(node.text or "" if node.tag == f"{_W}t" else " " for node in nodes)


# --- XLSX ---


def _read_xlsx(file: BinaryIO, writer: Writer, sheet: str | None) -> None:
    import openpyxl  # type: ignore[import-untyped]  # no types published

    values = openpyxl.load_workbook(file, read_only=True, data_only=True)
    formulas = openpyxl.load_workbook(file, read_only=True, data_only=False)
    names = [worksheet.title for worksheet in values.worksheets]
    if not names:
        raise Refused("it has no sheet with cells")
    if sheet is not None and sheet not in names:
        raise Refused(f"it has no sheet {sheet!r}; its sheets: {', '.join(map(repr, names[:50]))}")
    chosen = sheet or names[0]
    writer.head("Excel workbook", "row", None, sheets=names, sheet=chosen)
    first, last = writer.first, writer.last
    rows = itertools.zip_longest(
        values[chosen].iter_rows(min_row=first, max_row=last, values_only=True),
        formulas[chosen].iter_rows(min_row=first, max_row=last, values_only=True),
        fillvalue=(),
    )
    for number, (shown, written) in enumerate(rows, first):
        cells = [_shown(*cell) for cell in itertools.zip_longest(shown, written)][:_MOST_CELLS]
        while cells and not cells[-1]:
            cells.pop()
        if cells and writer.wants(number):
            writer.unit(number, "\t".join(cells))


def _shown(value: Any, written: Any) -> str:
    """A cell's value; its formula where the program that wrote the file stored no value."""
    if value is None:
        value = written
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return " ".join(str(value).split())


# --- PPTX ---


def _read_pptx(file: BinaryIO, writer: Writer) -> None:
    import pptx

    slides = list(pptx.Presentation(file).slides)
    writer.head("presentation", "slide", len(slides))
    for number, slide in enumerate(slides, 1):
        if writer.wants(number):
            lines = list(_shape_lines(slide.shapes, 0))
            if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
                lines += [f"Notes: {notes.text}"] if notes.text.strip() else []
            writer.unit(number, "\n".join(lines) or "[no text on this slide]")


def _shape_lines(shapes: Any, depth: int) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            if depth < _MOST_NESTED:
                yield from _shape_lines(shape.shapes, depth + 1)
        elif shape.has_text_frame:
            if text := shape.text_frame.text.strip():
                yield text
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield "| " + " | ".join(" ".join(cell.text.split()) for cell in row.cells) + " |"
        elif shape.shape_type is not None:
            yield f"[{str(shape.shape_type).split(' ')[0].lower()}: {shape.name}]"


def _write_all(writer: Writer, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines, 1):
        if writer.wants(number):
            writer.unit(number, line)
