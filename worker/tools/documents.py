"""ReadPdf and ReadOffice: the text of documents, by pages, slides, rows or lines, with a hint that reads on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jobs.plain_text import one_line, strip_terminal
from jobs.resolver import open_regular
from storage.text import clean_text
from worker.tokens import estimate_tokens
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.decoder import CannotDecode, decode, json_lines, require_size
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.text import prefix_that_fits

_LARGEST = 100 << 20
_CHARS_A_TOKEN = 16
_BYTES_A_CHAR = 12  # a character beyond the basic plane, escaped in JSON
_NOTICE_TOKENS = 80
_MOST_SHEETS = 100
_LAST_NUMBER = 100_000_000


def _parameters(unit: str, **more: Any) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1, "maximum": _LAST_NUMBER}
    return {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "path in the workspace"},
            "first": number | {"description": f"first {unit} to read, from 1"},
            "last": number | {"description": f"last {unit} to read"},
            "char_offset": {
                "type": "integer",
                "minimum": 0,
                "description": f"characters to skip of the first {unit}, where one is too long",
            },
            **more,
        },
        "required": ["path"],
        "additionalProperties": False,
    }


class ReadPdf:
    """Reading changes nothing, so a call whose worker died is simply made again."""

    name = "ReadPdf"
    description = (
        "Read the text of a PDF document, page by page, and how many pages it has. A long one is cut; the last line "
        "then says what reads on. Scanned pages have no text: it says so."
    )
    parameters: ClassVar[dict[str, Any]] = _parameters("page")
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return _read(context, arguments, "pdf")


class ReadOffice:
    """As ReadPdf. What is no text (charts, drawings, comments, headers and footers) is left out."""

    name = "ReadOffice"
    description = (
        "Read the text of an office document: DOCX by lines (paragraphs, table rows), XLSX by rows of one sheet (row "
        "number and cells, with tabs between), PPTX by slides. A long one is cut; the last line then says what reads on."
    )
    parameters: ClassVar[dict[str, Any]] = _parameters(
        "line, row or slide",
        sheet={"type": "string", "minLength": 1, "description": "sheet of a workbook (default: the first)"},
    )
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return _read(context, arguments, "office")


def _read(context: ToolContext, arguments: dict[str, Any], reader: str) -> ToolResult:
    path = relative_path(context, arguments["path"])
    most_chars = context.budget_tokens * _CHARS_A_TOKEN
    options = {
        "first": arguments.get("first", 1),
        "last": arguments.get("last"),
        "char_offset": arguments.get("char_offset", 0),
        "sheet": arguments.get("sheet"),
        "most_chars": most_chars,
    }
    if options["last"] is not None and options["last"] < options["first"]:
        return ToolResult("Error: last is before first", is_error=True)
    with opened_workspace(context) as root_fd, open_regular(root_fd, path) as file:
        require_size(path, file, _LARGEST)
        # Each unit is a line of JSON, and even an empty one takes its room of what may be written.
        most = (most_chars + 1000) * _BYTES_A_CHAR + 100_000
        document = _Document(
            json_lines(decode(context, path, file, reader=reader, options=options, most=most))
        )
    return document.told(options, context.budget_tokens)


@dataclass(frozen=True, slots=True)
class _Unit:
    number: int
    text: str
    cut: bool
    """its text goes on beyond what is here"""


class _Document:
    """What the reader said. Raises CannotDecode if that makes no sense."""

    def __init__(self, lines: Iterator[dict[str, Any]]) -> None:
        head = next(lines, {})
        self.what = one_line(_string(head, "what"), 60)
        self.unit = one_line(_string(head, "unit"), 20)
        self.total = head.get("total") if isinstance(head.get("total"), int) else None
        sheets = head.get("sheets")
        self.sheets = [one_line(str(name), 100) for name in sheets] if isinstance(sheets, list) else []
        self.sheet = one_line(str(head.get("sheet", "")), 100)
        self.units: list[_Unit] = []
        self.complete = False
        for line in lines:
            if line.get("end") is True:
                self.complete = True
            elif isinstance(line.get("n"), int):
                self.units.append(
                    _Unit(line["n"], clean_text(_string(line, "text")), line.get("cut") is True)
                )

    def told(self, options: dict[str, Any], budget: int) -> ToolResult:
        """The text that fits, whole units where it can be."""
        head = self._head()
        if not self.units:
            return self._nothing(head, options["first"])
        room = max(budget - _NOTICE_TOKENS - estimate_tokens(head), 1)
        skipped = options["char_offset"]
        parts: list[str] = []
        hint = None
        for unit in self.units:
            begun = skipped if unit.number == options["first"] else 0
            before, after = self._frame(unit.number, begun)
            shown = f"{before}{unit.text}{after}"
            cost = estimate_tokens(shown)
            if cost <= room and not unit.cut:
                parts.append(shown)
                room -= cost
                continue
            if parts:
                hint = f"first={unit.number}"
                break
            fits = prefix_that_fits(unit.text, max(room - estimate_tokens(before), 1))
            parts.append(f"{before}{unit.text[:fits]}\n")
            hint = f"first={unit.number} char_offset={begun + fits}"
            break
        else:
            following = self.units[-1].number + 1
            if not self.complete and (options["last"] is None or following <= options["last"]):
                hint = f"first={following}"
        more = f"{hint}{self._also(options)}" if hint else ""
        text = strip_terminal("".join(parts)).removesuffix("\n")
        return ToolResult(f"{head}\n{text}" + (f"\n[cut: more follows. Read on with {more}]" if more else ""))

    def _frame(self, number: int, begun: int) -> tuple[str, str]:
        """What stands around a unit: the number of a page, slide or row; a line of a text has none."""
        if self.unit == "row":
            return ("" if begun else f"{number}\t"), "\n"
        if self.unit == "line":
            return "", "\n"
        return ("" if begun else f"--- {self.unit} {number} ---\n"), "\n"

    def _head(self) -> str:
        size = f", {self.total} {self.unit}s" if self.total is not None else ""
        if not self.sheets:
            return f"[{self.what}{size}]"
        named = ", ".join(map(repr, self.sheets[:_MOST_SHEETS])) + (
            ", …" if self.sheets[_MOST_SHEETS:] else ""
        )
        return f"[{self.what}, sheets: {named}; this is {self.sheet!r}]"

    def _nothing(self, head: str, first: int) -> ToolResult:
        if self.total is not None and first > self.total:
            return ToolResult(f"Error: it has only {self.total} {self.unit}s", is_error=True)
        return ToolResult(f"{head}\n[nothing from {self.unit} {first} on]")

    def _also(self, options: dict[str, Any]) -> str:
        """The other arguments that go with a hint."""
        also = f" last={options['last']}" if options["last"] is not None else ""
        return also + (f" sheet={options['sheet']!r}" if options["sheet"] is not None else "")


def _string(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise CannotDecode("the document's reader gave no answer that can be understood")
    return value
