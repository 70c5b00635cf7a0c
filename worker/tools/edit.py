"""Edit: replace one passage of a file, or all that are equal."""

from __future__ import annotations

import bisect
import difflib
import os
from dataclasses import dataclass
from typing import Any, ClassVar

from jobs.errors import FileRejected
from jobs.plain_text import one_line
from jobs.resolver import open_regular, replacing, shorten
from jobs.workspace import human
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.encodings import Encoding, encoding_of
from worker.tools.paths import opened_workspace, writable_path
from worker.tools.sniff import BinaryFile
from worker.tools.text import mend_surrogates

_LARGEST = 16 << 20
_LINES_COMPARED = 5000


class Edit:
    """Not repeatable: where the new text contains the old one, a second run would change the file again. A call whose
    worker died is answered "outcome unknown", and a Read shows what is there."""

    name = "Edit"
    description = (
        "Replace old_string by new_string in a file of the workspace. old_string must be in the file exactly once, "
        "blanks included; add lines around it until it is unique, or set replace_all."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "path in the workspace"},
            "old_string": {"type": "string", "minLength": 1, "description": "the passage to replace"},
            "new_string": {"type": "string", "description": "what to put there"},
            "replace_all": {"type": "boolean", "description": "replace every occurrence (default: false)"},
        },
        "required": ["path", "old_string", "new_string"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.UNKNOWN_AFTER_CRASH
    edits = True

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = writable_path(context, arguments["path"])
        old = mend_surrogates(arguments["old_string"]).replace("\r\n", "\n")
        new = mend_surrogates(arguments["new_string"]).replace("\r\n", "\n")
        if old == new:
            return ToolResult("Error: old_string and new_string are the same", is_error=True)
        with opened_workspace(context) as root_fd:
            document = _load(root_fd, path)
            starts = _occurrences(document.normalised, old)
            if not starts:
                return ToolResult(f"Error: {_near_miss(path, document.normalised, old)}", is_error=True)
            if len(starts) > 1 and not arguments.get("replace_all", False):
                lines = ", ".join(str(document.normalised.count("\n", 0, at) + 1) for at in starts[:10])
                return ToolResult(
                    f"Error: old_string is in {shorten(path)} {len(starts)} times (lines {lines}"
                    f"{', …' if len(starts) > 10 else ''}). Add context until it is unique, or set replace_all.",
                    is_error=True,
                )
            context.cancel.raise_if_cancelled()
            try:
                data = replaced(document, starts, len(old), new)
            except UnicodeEncodeError as error:
                lacking = error.object[error.start : error.start + 1]
                told = f"Error: {shorten(path)} is in {document.encoding.label}, which has no {lacking!r}"
                return ToolResult(f"{told}. Use other characters, or convert the file first.", is_error=True)
            with replacing(root_fd, path) as file:
                file.write(data)
        times = "1 passage" if len(starts) == 1 else f"{len(starts)} passages"
        line = document.normalised.count("\n", 0, starts[0]) + 1
        return ToolResult(f"Replaced {times} in {path} (line {line}{' first' if len(starts) > 1 else ''})")


@dataclass(frozen=True, slots=True)
class _Document:
    """A file's text, as it is and with its CRLF line ends as LF.

    `crlf` holds where in `normalised` those line ends are, so that a position there can be found in `text`.
    """

    data: bytes
    text: str
    normalised: str
    crlf: list[int]
    encoding: Encoding

    def original(self, position: int) -> int:
        return position + bisect.bisect_left(self.crlf, position)

    def usual_line_end(self) -> str:
        return "\r\n" if len(self.crlf) * 2 > self.normalised.count("\n") else "\n"


def document_of(data: bytes, encoding: Encoding) -> _Document:
    """The text of a file, taken apart for editing."""
    text = encoding.decode(data[len(encoding.bom) :])
    crlf: list[int] = []
    index = text.find("\r\n")
    while index >= 0:
        crlf.append(index - len(crlf))
        index = text.find("\r\n", index + 2)
    return _Document(data, text, text.replace("\r\n", "\n") if crlf else text, crlf, encoding)


def _load(root_fd: int, path: str) -> _Document:
    with open_regular(root_fd, path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST:
            raise FileRejected(
                f"{shorten(path)} has {human(size)}; Edit takes {human(_LARGEST)}", hint="use sed"
            )
        try:
            encoding = encoding_of(file)
        except BinaryFile as error:
            raise FileRejected(f"{shorten(path)} is {error}, not text") from None
        file.seek(0)
        return document_of(file.read(_LARGEST), encoding)


def _occurrences(text: str, wanted: str) -> list[int]:
    starts = []
    index = text.find(wanted)
    while index >= 0:
        starts.append(index)
        index = text.find(wanted, index + len(wanted))
    return starts


def replaced(document: _Document, starts: list[int], length: int, new: str) -> bytes:
    """The file's bytes with the passages at `starts` (of the normalised text) replaced: all others stay as they are,
    also those that are no characters. Raises UnicodeEncodeError where the file's encoding has no such character."""
    data, encoding = document.data, document.encoding
    usual = document.usual_line_end()
    done, at = 0, len(encoding.bom)  # the same place, in the text and in the bytes
    pieces = [data[:at]]
    for start in starts:
        begin, end = document.original(start), document.original(start + length)
        kept = at + encoding.size(data, document.text[done:begin], at)
        old = document.text[begin:end]
        pieces += [data[at:kept], _with_line_ends(new, old, usual).encode(encoding.codec)]
        done, at = end, kept + encoding.size(data, old, kept)
    return b"".join([*pieces, data[at:]])


def _with_line_ends(new: str, old: str, usual: str) -> str:
    """`new` with the line ends of the passage it replaces, line by line; further lines get the last of them, or the
    file's usual one if the passage had none."""
    ends = ["\r\n" if part.endswith("\r") else "\n" for part in old.split("\n")[:-1]]
    lines = new.split("\n")
    last = ends[-1] if ends else usual
    pieces = [line + (ends[at] if at < len(ends) else last) for at, line in enumerate(lines[:-1])]
    return "".join([*pieces, lines[-1]])


def _near_miss(path: str, text: str, old: str) -> str:
    """Why the passage was not found, as far as a cheap look tells."""
    said = f"old_string is not in {shorten(path)}"
    lines = text.split("\n")
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    stripped = [line.strip() for line in lines]
    for at in range(len(stripped) - len(wanted) + 1):
        if stripped[at] == wanted[0] and stripped[at : at + len(wanted)] == wanted:
            return f"{said}; line {at + 1} differs only in blanks: {lines[at][:200]!r}"
    first = next((line for line in wanted if line), "")
    if first and first in stripped:
        at = stripped.index(first)
        return f"{said}; its line {one_line(first, 80)!r} is at line {at + 1}, but what is around it differs"
    candidates = [line for line in stripped[:_LINES_COMPARED] if 0 < len(line) <= 200]
    near = difflib.get_close_matches(first[:200], candidates, n=1, cutoff=0.7) if first else []
    if near:
        return f"{said}; the nearest is line {stripped.index(near[0]) + 1}: {one_line(near[0])!r}"
    return f"{said}, nor anything near it. Read the file first."
