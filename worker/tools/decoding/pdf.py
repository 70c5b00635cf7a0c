"""PDF: the text of each page, where it has any."""

from __future__ import annotations

import logging
from typing import Any, BinaryIO

import pypdf
from pypdf.errors import DependencyError

from worker.tools.decoding.refused import Full, Refused, Writer


def read(request: dict[str, Any], file: BinaryIO, out: BinaryIO) -> None:
    """Writes the pages from `first` on."""
    logging.disable(logging.CRITICAL)
    if b"%PDF-" not in file.read(1024):
        raise Refused("it is no PDF document")
    file.seek(0)
    reader = pypdf.PdfReader(file)
    if reader.is_encrypted and not _unlocked(reader):
        raise Refused("it is encrypted and needs a password")
    writer = Writer(request, out)
    total = len(reader.pages)
    writer.head("PDF document", "page", total)
    try:
        for number in range(writer.first, total + 1):
            if writer.wants(number):
                writer.unit(number, _text(reader, number))
    except Full:
        return
    writer.end()


def _unlocked(reader: pypdf.PdfReader) -> bool:
    """Many documents are encrypted with an empty password, only to forbid printing."""
    try:
        return bool(reader.decrypt(""))
    except (DependencyError, NotImplementedError):
        return False


def _text(reader: pypdf.PdfReader, number: int) -> str:
    try:
        page = reader.pages[number - 1]
        text = page.extract_text()
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001  one bad page does not hide the others
        return f"[this page cannot be read: {type(error).__name__}]"
    if text.strip():
        return text.strip("\n")
    images = _images(page)
    return f"[no text on this page, only {images} images: probably a scan]" if images else "[an empty page]"


def _images(page: pypdf.PageObject) -> int:
    """How many images a page shows, none of them decoded."""
    try:
        objects = page["/Resources"]["/XObject"]  # type: ignore[index]
        return sum(objects[name]["/Subtype"] == "/Image" for name in objects)
    except Exception:  # noqa: BLE001  a guess for a message
        return 0
