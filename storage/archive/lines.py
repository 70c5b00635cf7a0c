"""Reading .jsonl files of which any byte may be broken: each record that can be read is read, each other one is told.

Half a line where a writer died, also with the next record behind it on the same line; a character that was cut; a run of
NULs, as a power cut leaves it; a line without end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_LINE = 64 << 20  # a longer line is none of ours
_BLOCK = 1 << 20
_RECORD = re.compile(rb'\{"')
_MOST_TRIES = 64  # places in a broken line at which another record may begin


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in an archive that could not be taken as it is. `file` is relative to the archive."""

    file: str
    line: int | None
    what: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.what}"


Tell = Callable[[Problem], None]


def read_records(
    file: BinaryIO, name: str, tell: Tell, needed: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file with the numbers of their lines (from 1). `needed` are the keys without which it is none.

    Reads line by line, whatever the size of the file.
    """
    for number, raw in _lines(file):
        if raw is None:
            tell(Problem(name, number, f"a line of more than {MOST_LINE >> 20} MiB, skipped"))
            continue
        record, problem = parse_line(raw, needed)
        if problem is not None:
            tell(Problem(name, number, problem))
        if record is not None:
            yield number, record


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    while raw := file.readline(MOST_LINE):
        number += 1
        if len(raw) < MOST_LINE or raw.endswith(b"\n"):
            yield number, raw
            continue
        while (rest := file.readline(_BLOCK)) and not rest.endswith(b"\n"):
            pass
        yield number, None


def parse_line(raw: bytes, needed: Sequence[str]) -> tuple[dict[str, Any] | None, str | None]:
    """(its record, what is wrong with it): both where it was repaired, neither for an empty line."""
    body = raw.strip(b" \t\r\n")
    if not body:
        return None, None
    bare = body.strip(b"\0 \t")
    if not bare:
        return None, "a run of NULs, skipped"
    cut = not raw.endswith(b"\n")
    record, problem = _parse(bare, needed, cut=cut)
    if record is not None:
        return record, None if bare == body else "a run of NULs beside a record, left out"
    for match in list(_RECORD.finditer(bare, 1))[-_MOST_TRIES:]:
        record, _ = _parse(bare[match.start() :], needed, cut=cut)
        if record is not None:
            return record, f"{problem}; the record behind it on the same line was read"
    return None, f"{problem}, skipped"


def _parse(text: bytes, needed: Sequence[str], *, cut: bool) -> tuple[dict[str, Any] | None, str]:
    try:
        record = json.loads(text.decode())
    except UnicodeDecodeError:
        return None, "a cut or broken UTF-8 character"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError:
        return None, "half a line" if cut else "no JSON"
    if not isinstance(record, dict):
        return None, "no object"
    missing = [name for name in needed if name not in record]
    return (None, f"without {', '.join(missing)}") if missing else (record, "")
