"""Grep: the lines that fit a regular expression."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jobs.errors import FileRejected, NotFound
from jobs.resolver import open_beneath, open_regular, shorten
from jobs.workspace import human
from storage.text import clean_text
from worker.cancel import CancelToken
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.glob import file_filter, walked
from worker.tools.page import Page
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.patterns import BadPattern, Pattern, regular_expression
from worker.tools.read import as_utf8
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
        "No look-around, no back-references. Of a long line only the part around the match is shown."
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
            "offset": {"type": "integer", "minimum": 0, "description": "number of first results to skip"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = relative_path(context, arguments.get("path", ""))
        try:
            search = _search(arguments, context.cancel)
            wanted = file_filter(arguments["glob"]) if "glob" in arguments else None
        except BadPattern as error:
            return ToolResult(f"Error: {error}", is_error=True)
        page = Page(context.budget_tokens, arguments.get("offset", 0))
        with opened_workspace(context) as root_fd:
            _search_files(root_fd, path, wanted, search, page)
        found = page.text("results") or "No line fits."
        if search.too_large:
            skipped = ", ".join(search.too_large[:5]) + (", …" if len(search.too_large) > 5 else "")
            found += f"\n[not searched, over {human(_LARGEST)}: {clean_text(skipped)}; use grep in Bash]"
        return ToolResult(found)


@dataclass(frozen=True, slots=True)
class _Search:
    line: Pattern
    anywhere: Pattern | None
    """The same expression over a whole text: where it finds nothing, no line has a match. None if that is not so."""
    context: int
    files_only: bool
    cancel: CancelToken
    too_large: list[str] = field(default_factory=list)


def _search(arguments: dict[str, Any], cancel: CancelToken) -> _Search:
    pattern = arguments["pattern"]
    ignore_case = arguments.get("ignore_case", False)
    line = regular_expression(pattern, ignore_case=ignore_case)
    anchored = "\\A" in pattern or "\\z" in pattern
    anywhere = None if anchored else regular_expression(f"(?m:{pattern})", ignore_case=ignore_case)
    return _Search(line, anywhere, arguments.get("context", 0), arguments.get("files_only", False), cancel)


def _search_files(root_fd: int, path: str, wanted: Pattern | None, search: _Search, page: Page) -> None:
    for name in _files(root_fd, path, wanted, search.cancel):
        try:
            data = _text_of(root_fd, name, search)
        except (FileRejected, NotFound):
            if name == path:  # asked for by name: say why
                raise
            continue
        for result in _results(name, data, search):
            if not page.add(result):
                return


def _files(root_fd: int, path: str, wanted: Pattern | None, cancel: CancelToken) -> Iterator[str]:
    fd = open_beneath(root_fd, path, os.O_RDONLY)
    try:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
    if not is_folder:
        yield path
        return
    for entry in walked(root_fd, path, cancel, git=False):
        below = entry.path[len(path) :].lstrip("/")
        if entry.kind == "file" and (wanted is None or wanted.fullmatch(below.encode("utf-8", "replace"))):
            yield entry.path


def _text_of(root_fd: int, name: str, search: _Search) -> bytes:
    """The file's text as UTF-8 with LF line ends; empty (and remembered) when it is too large."""
    with open_regular(root_fd, name) as opened:
        if os.fstat(opened.fileno()).st_size > _LARGEST:
            search.too_large.append(name)
            return b""
        try:
            file, _, _ = as_utf8(opened)
        except BinaryFile as error:
            raise FileRejected(f"{shorten(name)} is {error}, not text") from None
        file.seek(0)
        return file.read(_LARGEST)


def _results(name: str, data: bytes, search: _Search) -> Iterator[str]:
    """The lines to show, one by one, so that a page can end anywhere: `path:line:text` for a match, `path-line-text`
    for what is around it, `--` between two places."""
    if not _may_match(data, search):
        return
    shown = clean_text(name)
    lines = data.removesuffix(b"\n").split(b"\n")

    def around(first: int, last: int) -> Iterator[str]:
        for at in range(first, last + 1):
            yield f"{shown}-{at + 1}-{_whole_or_head(lines[at])}\n"

    done = wanted = -1  # the last line shown; the last one wanted after a match
    for number, text in _matches(lines, search):
        if search.files_only:
            yield f"{shown}\n"
            return
        after = min(wanted, number - 1)
        yield from around(done + 1, after)
        done = max(done, after)
        before = max(number - search.context, done + 1)
        if search.context and 0 <= done < before - 1:
            yield "--\n"
        yield from around(before, number - 1)
        yield f"{shown}:{number + 1}:{text}\n"
        done, wanted = number, number + search.context
    yield from around(done + 1, min(wanted, len(lines) - 1))


def _may_match(data: bytes, search: _Search) -> bool:
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


def _matches(lines: list[bytes], search: _Search) -> Iterator[tuple[int, str]]:
    """The index of each line with a match, and the line as it is shown."""
    offset = 0
    for number, line in enumerate(lines):
        if number % _LINES_BETWEEN_LOOKS == 0:
            search.cancel.raise_if_cancelled()
        match = search.line.search(line.removesuffix(b"\r"))
        if match is not None:
            yield number, _snippet(line, match.start(), match.end(), offset)
        offset += len(line) + 1


def _snippet(line: bytes, start: int, end: int, offset: int) -> str:
    """The line, or of a long one the part around the match and where Read finds it."""
    if len(line) <= _LONG_LINE:
        return _text(line)
    first = max(start - _SNIPPET, 0)
    first += len(line[first : first + 4]) - len(line[first : first + 4].lstrip(CONTINUATION))
    part = line[first : min(end, start + _SNIPPET) + _SNIPPET]
    part = part[: whole_characters(part)]
    return f"…{_text(part)}… [a line of {len(line)} bytes: Read with byte_offset={offset + first}]"


def _whole_or_head(line: bytes) -> str:
    return _text(line) if len(line) <= _LONG_LINE else _text(line[: whole_characters(line[:_SNIPPET])]) + "…"


def _text(line: bytes) -> str:
    return clean_text(line.decode("utf-8", "replace").rstrip("\r"))
