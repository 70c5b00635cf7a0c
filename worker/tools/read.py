"""Read: a text file, or the part of it that fits."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

from jobs.errors import FileRejected
from jobs.resolver import open_regular, shorten
from jobs.workspace import human
from worker.cancel import CancelToken
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.sniff import HEAD_BYTES, BinaryFile, Encoding, text_encoding, whole_characters
from worker.tools.text import prefix_that_fits

_BLOCK = 1 << 20
_LARGEST_UTF16 = 64 << 20
_NOTICE_TOKENS = 100
_BYTES_A_TOKEN = 16  # more than any real text has; bounds what is read before it is measured
_UNDECODED = re.compile("[\udc80-\udcff]")


class Read:
    """Text is returned exactly as it is: no line numbers, line ends kept. See `_Part` for where it is cut."""

    name = "Read"
    description = (
        "Read a text file of the workspace. The text comes as it is, without line numbers. A long file is cut; the "
        "last line then says which offset or byte_offset reads on."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "path in the workspace, such as input/a.txt",
            },
            "offset": {"type": "integer", "minimum": 1, "description": "first line to read, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "number of lines, at most"},
            "byte_offset": {
                "type": "integer",
                "minimum": 0,
                "description": "first byte to read, instead of offset; for files with very long lines",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = relative_path(context, arguments["path"])
        if "offset" in arguments and "byte_offset" in arguments:
            return ToolResult("Error: give offset or byte_offset, not both", is_error=True)
        with opened_workspace(context) as root_fd, open_regular(root_fd, path) as opened:
            try:
                file, size, encoding = as_utf8(opened)
            except BinaryFile as error:
                return ToolResult(
                    _binary_hint(path, str(error), os.fstat(opened.fileno()).st_size), is_error=True
                )
            bom = 3 if encoding == "utf-8-sig" else 0
            line: int | None = None
            if "byte_offset" in arguments:
                start = _character_start(file, max(arguments["byte_offset"], bom))
            else:
                line = arguments.get("offset", 1)
                start, lines = _find_line(file, bom, line, context.cancel)
                if line > 1 and start >= size:
                    return ToolResult(f"Error: {shorten(path)} has only {lines} lines", is_error=True)
            if start >= size:
                beyond = start > bom
                told = f"Error: {shorten(path)} ends at byte {size}" if beyond else "[the file is empty]"
                return ToolResult(told, is_error=beyond)
            part = _read_part(file, start, line, arguments.get("limit"), context.budget_tokens)
        return ToolResult(part.text + _notice(part, size))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the file. It ends at a line's end where one fits, else between two characters; the next part begins
    exactly at byte `end`, which is the start of line `next_line` if that is known."""

    text: str
    end: int
    next_line: int | None


def as_utf8(opened: BinaryIO) -> tuple[BinaryIO, int, Encoding]:
    """The file as UTF-8 bytes with their number: itself, or a transcoded copy if it is UTF-16. Raises BinaryFile."""
    encoding = text_encoding(opened.read(HEAD_BYTES))
    size = os.fstat(opened.fileno()).st_size
    if encoding != "utf-16":
        return opened, size, encoding
    if size > _LARGEST_UTF16:
        raise FileRejected(
            f"a UTF-16 file may have {human(_LARGEST_UTF16)}", hint="convert it with iconv first"
        )
    opened.seek(0)
    data = opened.read().decode("utf-16", "replace").encode()
    return io.BytesIO(data), len(data), encoding


def _character_start(file: BinaryIO, position: int) -> int:
    """`position`, or up to three bytes before it if it lies inside a character."""
    file.seek(max(position - 3, 0))
    before = file.read(position - max(position - 3, 0))
    following = file.read(1)
    if not following or following[0] & 0xC0 != 0x80:
        return position
    return position - (len(before) - whole_characters(before))


def _find_line(file: BinaryIO, start: int, line: int, cancel: CancelToken) -> tuple[int, int]:
    """Where line number `line` begins (the file's end if it has fewer), and how many lines were counted."""
    position = start
    missing = line - 1
    file.seek(position)
    last = b"\n"
    while missing and (block := file.read(_BLOCK)):
        cancel.raise_if_cancelled()
        last = block[-1:]
        found = block.count(b"\n")
        if found < missing:
            missing -= found
            position += len(block)
            continue
        index = -1
        for _ in range(missing):
            index = block.index(b"\n", index + 1)
        return position + index + 1, line - 1
    return position, line - 1 - missing + (last != b"\n")


def _read_part(file: BinaryIO, start: int, line: int | None, limit: int | None, budget: int) -> _Part:
    file.seek(start)
    window = file.read(budget * _BYTES_A_TOKEN)
    more = bool(file.read(1))
    if more:
        # A window without any whole character is no UTF-8: taken as it is, so that reading moves forward.
        window = window[: whole_characters(window) or len(window)]
    # Bytes that are no UTF-8 become one lone surrogate each, so that characters can be counted back to bytes.
    text = window.decode("utf-8", "surrogateescape")
    if limit is not None:
        text = _first_lines(text, limit)
    fits = prefix_that_fits(text, max(budget - _NOTICE_TOKENS, 1))
    if fits < len(text) or more:
        after_newline = text.rfind("\n", 0, fits) + 1
        # By lines, a part ends with a line if it holds one; by bytes, only if that does not waste half of it.
        if after_newline > (0 if line is not None else fits // 2):
            fits = after_newline
    text = text[:fits]
    end = start + len(text.encode("utf-8", "surrogateescape"))
    next_line = line + text.count("\n") if line is not None and text.endswith("\n") else None
    return _Part(_UNDECODED.sub("\ufffd", text), end, next_line)


def _first_lines(text: str, limit: int) -> str:
    index = -1
    for _ in range(limit):
        index = text.find("\n", index + 1)
        if index < 0:
            return text
    return text[: index + 1]


def _notice(part: _Part, size: int) -> str:
    if part.end >= size:
        return ""
    where = f"offset={part.next_line}" if part.next_line is not None else f"byte_offset={part.end}"
    return f"\n[cut: {size - part.end} of {size} bytes follow. Read on with {where}, or find the place with Grep]"


def _binary_hint(path: str, what: str, size: int) -> str:
    return (
        f"Error: {shorten(path)} is {what} ({human(size)}), not text. With Bash, `file`, `strings | head` or "
        "`xxd | head` show what is in it."
    )
