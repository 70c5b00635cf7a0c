"""Grep: the lines that fit a regular expression."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jobs.errors import FileRejected, NotFound
from jobs.resolver import open_regular, shorten
from jobs.workspace import human
from storage.text import clean_text
from worker.cancel import CancelToken
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.encodings import UTF8, Encoding, encoding_of, shown_undecoded
from worker.tools.page import Page
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.patterns import BadPattern, Pattern, regular_expression
from worker.tools.search import IGNORED_PARAMETER, OFFSET_PARAMETER, Search, file_filter, page_of, with_notes
from worker.tools.sniff import CONTINUATION, BinaryFile, whole_characters

_LARGEST = 32 << 20
_LINES_BETWEEN_LOOKS = 4096
_BLOCK = 1 << 18
_SNIPPET = 200
_LONG_LINE = 3 * _SNIPPET


class Grep:
    name = "Grep"
    description = (
        "Search the text files of the workspace for an RE2 regular expression, line by line; answers path:line:text. "
        "No look-around, no back-references. Of a long line only the part around the match is shown. "
        "What .gitignore files leave out is not searched unless asked for."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "RE2 expression"},
            "path": {
                "type": "string",
                "description": "file or folder to search (default: the whole workspace)",
            },
            "glob": {
                "type": "string",
                "minLength": 1,
                "description": "search only files that fit, such as *.py",
            },
            "ignore_case": {"type": "boolean"},
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": 20,
                "description": "lines around each match",
            },
            "files_only": {"type": "boolean", "description": "list only the files that have a match"},
            "ignored": IGNORED_PARAMETER,
            "offset": OFFSET_PARAMETER,
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = relative_path(context, arguments.get("path", ""))
        try:
            lines = _line_search(arguments, context.cancel)
            wanted = file_filter(arguments["glob"]) if "glob" in arguments else None
        except BadPattern as error:
            return ToolResult(f"Error: {error}", is_error=True)
        page = page_of(arguments, context.budget_tokens)
        with opened_workspace(context) as root_fd:
            search = Search(root_fd, path, context.cancel, wanted, ignored=arguments.get("ignored", False))
            _search_files(search, lines, page)
        notes = search.notes()
        if lines.too_large:
            skipped = ", ".join(lines.too_large[:5]) + (", …" if len(lines.too_large) > 5 else "")
            notes.append(f"[not searched, over {human(_LARGEST)}: {clean_text(skipped)}; use grep in Bash]")
        return ToolResult(with_notes(page.text("results") or "No line fits.", notes))


@dataclass(frozen=True, slots=True)
class _LineSearch:
    line: Pattern
    anywhere: Pattern | None
    """The same expression over a whole text: where it finds nothing, no line has a match. None if that is not so."""
    context: int
    files_only: bool
    cancel: CancelToken
    too_large: list[str] = field(default_factory=list)


def _line_search(arguments: dict[str, Any], cancel: CancelToken) -> _LineSearch:
    pattern = arguments["pattern"]
    ignore_case = arguments.get("ignore_case", False)
    line = regular_expression(pattern, ignore_case=ignore_case)
    anchored = "\\A" in pattern or "\\z" in pattern
    anywhere = None if anchored else regular_expression(f"(?m:{pattern})", ignore_case=ignore_case)
    return _LineSearch(
        line, anywhere, arguments.get("context", 0), arguments.get("files_only", False), cancel
    )


def _search_files(search: Search, lines: _LineSearch, page: Page) -> None:
    for name in search.files():
        try:
            text = _text_of(search.root_fd, name, lines)
        except (FileRejected, NotFound):
            if name == search.path:  # asked for by name: say why
                raise
            continue
        for result in _results(name, text, lines):
            if not page.add(result):
                return


class _FileText:
    """A file's text as UTF-8, and where its characters are in the file itself."""

    def __init__(self, raw: bytes, encoding: Encoding) -> None:
        self._raw, self._encoding = raw, encoding
        self._decoded = "" if encoding.is_utf8 else encoding.decode(raw[len(encoding.bom) :])
        self._place = (0, 0, len(encoding.bom))  # the same in UTF-8 bytes, in characters, in the file's bytes
        if encoding.is_utf8:
            self.data = raw.removeprefix(encoding.bom)
        else:
            self.data = shown_undecoded(self._decoded).encode()

    def position(self, offset: int) -> int:
        """Where byte `offset` of `data` is in the file. Cheap only for offsets in ascending order."""
        before, characters, position = self._place
        if self._encoding.is_utf8 or offset < before:
            return offset + len(self._encoding.bom)
        following = characters + len(self.data[before:offset].decode())
        position += self._encoding.size(self._raw, self._decoded[characters:following], position)
        self._place = (offset, following, position)
        return position


def _text_of(root_fd: int, name: str, search: _LineSearch) -> _FileText:
    """The file's text; empty (and remembered) when it is too large."""
    with open_regular(root_fd, name) as file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            search.too_large.append(name)
            return _FileText(b"", UTF8)
        try:
            encoding = encoding_of(file)
        except BinaryFile as error:
            raise FileRejected(f"{shorten(name)} is {error}, not text", hint=error.hint) from None
        file.seek(0)
        return _FileText(file.read(_LARGEST), encoding)


def _results(name: str, text: _FileText, search: _LineSearch) -> Iterator[str]:
    """The lines to show, one by one, so that a page can end anywhere: `path:line:text` for a match, `path-line-text`
    for what is around it, `--` between two places."""
    if not _may_match(text.data, search):
        return
    shown = clean_text(name)
    before: deque[tuple[int, bytes]] = deque(maxlen=search.context)
    last = after = 0  # the number of the last line shown; how many are still wanted after a match
    for number, start, line in _lines(text.data, search.cancel):
        match = search.line.search(line.removesuffix(b"\r"))
        if match is None:
            if after:
                yield f"{shown}-{number}-{_whole_or_head(line)}\n"
                last, after = number, after - 1
            else:
                before.append((number, line))
            continue
        if search.files_only:
            yield f"{shown}\n"
            return
        if search.context and 0 < last < (before[0][0] if before else number) - 1:
            yield "--\n"
        for earlier, its_line in before:
            yield f"{shown}-{earlier}-{_whole_or_head(its_line)}\n"
        before.clear()
        yield f"{shown}:{number}:{_snippet(line, match.start(), match.end(), start, text)}\n"
        last, after = number, search.context


def _lines(data: bytes, cancel: CancelToken) -> Iterator[tuple[int, int, bytes]]:
    """The number of each line, where it begins, and the line without its end."""
    number = start = 0
    while start < len(data):
        if number % _LINES_BETWEEN_LOOKS == 0:
            cancel.raise_if_cancelled()
        number += 1
        newline = data.find(b"\n", start)
        end = newline if newline >= 0 else len(data)
        yield number, start, data[start:end]
        start = end + 1


def _may_match(data: bytes, search: _LineSearch) -> bool:
    """False if no line has a match: much faster than asking line by line, and most files have none."""
    if search.anywhere is None:
        return True
    start = 0
    while start < len(data):  # in blocks, because a match in RE2 cannot be cancelled
        search.cancel.raise_if_cancelled()
        newline = data.find(b"\n", start + _BLOCK)
        end = newline + 1 if newline >= 0 else len(data)
        if search.anywhere.search(data[start:end].replace(b"\r\n", b"\n")) is not None:
            return True
        start = end
    return False


def _snippet(line: bytes, start: int, end: int, offset: int, text: _FileText) -> str:
    """The line, or of a long one the part around the match and where Read finds it."""
    if len(line) <= _LONG_LINE:
        return _text(line)
    first = max(start - _SNIPPET, 0)
    first += len(line[first : first + 4]) - len(line[first : first + 4].lstrip(CONTINUATION))
    part = line[first : min(end, start + _SNIPPET) + _SNIPPET]
    part = part[: whole_characters(part)]
    return f"…{_text(part)}… [a line of {len(line)} bytes: Read with byte_offset={text.position(offset + first)}]"


def _whole_or_head(line: bytes) -> str:
    return _text(line) if len(line) <= _LONG_LINE else _text(line[: whole_characters(line[:_SNIPPET])]) + "…"


def _text(line: bytes) -> str:
    return clean_text(line.decode("utf-8", "replace").rstrip("\r"))
