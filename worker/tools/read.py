"""Read: a text file, or the part of it that fits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

from jobs.resolver import open_regular, shorten
from jobs.workspace import human
from worker.cancel import CancelToken
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.encodings import Encoding, encoding_of, shown_undecoded
from worker.tools.paths import opened_workspace, relative_path
from worker.tools.sniff import BinaryFile
from worker.tools.text import prefix_that_fits

_BLOCK = 1 << 20
_NOTICE_TOKENS = 120
_BYTES_A_TOKEN = 16  # more than any real text has; bounds what is read before it is measured


class Read:
    """Text is returned exactly as it is: no line numbers, line ends kept. See `_Part` for where it is cut."""

    name = "Read"
    description = (
        "Read a text file of the workspace. The text comes as it is, without line numbers. A long file is cut; the "
        "last line then says which offset or byte_offset reads on. For images, PDF and office documents use ReadImage, "
        "ReadPdf and ReadOffice."
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
            "byte_limit": {"type": "integer", "minimum": 1, "description": "number of bytes, about, at most"},
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
        with opened_workspace(context) as root_fd, open_regular(root_fd, path) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                encoding = encoding_of(file)
            except BinaryFile as error:
                told = f"Error: {shorten(path)} is {error} ({human(size)}), not text. {error.hint}"
                return ToolResult(told, is_error=True)
            text = _Text(file, size, encoding)
            line: int | None = None
            if "byte_offset" in arguments:
                start = encoding.start_of_character(file, arguments["byte_offset"])
            else:
                line = arguments.get("offset", 1)
                start, lines = text.find_line(line, context.cancel)
                if line > 1 and start >= size:
                    return ToolResult(f"Error: {shorten(path)} has only {lines} lines", is_error=True)
            if start >= size:
                beyond = start > len(encoding.bom)
                told = f"Error: {shorten(path)} ends at byte {size}" if beyond else "[the file is empty]"
                return ToolResult(told, is_error=beyond)
            part = text.part(start, line, arguments, context.budget_tokens)
        return ToolResult(part.text + _notice(part, text))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the file. It ends at a line's end where one fits, else between two characters; the next part begins
    exactly at byte `end`, which is the start of line `next_line` if that is known."""

    text: str
    end: int
    next_line: int | None


@dataclass(frozen=True, slots=True)
class _Text:
    """An open text file."""

    file: BinaryIO
    size: int
    encoding: Encoding

    def find_line(self, line: int, cancel: CancelToken) -> tuple[int, int]:
        """Where line number `line` begins (the file's end if it has fewer), and how many lines were counted."""
        position = len(self.encoding.bom)
        missing = line - 1
        newline = "\n".encode(self.encoding.codec)
        self.file.seek(position)
        last = newline
        while missing and (block := self.file.read(_BLOCK)):
            cancel.raise_if_cancelled()
            found = self._count_lines(block, newline)
            if found >= missing:
                return position + self._after_line(block, newline, missing), line - 1
            missing -= found
            position += len(block)
            last = block[-len(newline) :]
        return position, line - 1 - missing + (last != newline)

    def _count_lines(self, block: bytes, newline: bytes) -> int:
        # In wide units the same bytes also lie across two of them.
        return block.count(newline) if len(newline) == 1 else self.encoding.decode(block).count("\n")

    def _after_line(self, block: bytes, newline: bytes, number: int) -> int:
        at = 0
        while number:
            at = block.index(newline, at)
            aligned = at % len(newline) == 0
            number -= aligned
            at += len(newline) if aligned else 1
        return at

    def part(self, start: int, line: int | None, arguments: dict[str, Any], budget: int) -> _Part:
        """What fits of the text from byte `start`."""
        room = min(budget * _BYTES_A_TOKEN, max(arguments.get("byte_limit", self.size), 4))
        self.file.seek(start)
        window = self.file.read(room)
        more = start + len(window) < self.size
        text = self.encoding.decode(window, final=not more)
        if "limit" in arguments:
            text = _first_lines(text, arguments["limit"])
        fits = prefix_that_fits(text, max(budget - _NOTICE_TOKENS, 1))
        if fits < len(text) or more:
            after_newline = text.rfind("\n", 0, fits) + 1
            # By lines, a part ends with a line if it holds one; by bytes, only if that does not waste half of it.
            if after_newline > (0 if line is not None else fits // 2):
                fits = after_newline
        text = text[:fits]
        end = start + self.encoding.size(window, text)
        next_line = line + text.count("\n") if line is not None and text.endswith("\n") else None
        return _Part(shown_undecoded(text), end, next_line)


def _first_lines(text: str, limit: int) -> str:
    index = -1
    for _ in range(limit):
        index = text.find("\n", index + 1)
        if index < 0:
            return text
    return text[: index + 1]


def _notice(part: _Part, text: _Text) -> str:
    told = [] if text.encoding.is_utf8 else [f"the file is in {text.encoding.label}"]
    if part.end < text.size:
        where = f"offset={part.next_line}" if part.next_line is not None else f"byte_offset={part.end}"
        told.insert(
            0,
            f"cut: {text.size - part.end} of {text.size} bytes follow. "
            f"Read on with {where}, or find the place with Grep",
        )
    return f"\n[{'; '.join(told)}]" if told else ""
