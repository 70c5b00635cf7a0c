"""From a job's folder to its rows. Any byte of the folder may be wrong: what can be read is read, the rest is told.

What every reader of an archive sees lies beside what only we need, so a job without our own folder, or with a broken one,
is read from the rest: its messages, summaries and plans.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import sqlalchemy as sa

from storage.archive import layout
from storage.archive.conform import Unfit, fit, usual_row
from storage.archive.lines import Problem, Tell, read_records
from storage.archive.rows import KEPT
from storage.errors import SostenutoError
from storage.models import comments, images, job_events, jobs, messages, plans, runs, summaries, tool_calls

MOST_DOCUMENT = 64 << 20  # bytes of a file that is read as a whole
IMPORT_RUN = "import"  # the run of messages that name none
Record = dict[str, Any]
# Opens a file of the job's folder, never through a link; None where there is none. Raises SostenutoError or OSError.
Open = Callable[[str], BinaryIO | None]


@dataclass
class Found:
    """What was read so far: it decides what the job's row can say of the rest."""

    last: dict[str, int] = field(default_factory=dict)  # the highest number of a table
    lost: set[str] = field(default_factory=set)  # files of which records are missing
    first_said: str | None = None  # by a person: what a job without our folder is about
    last_said: str | None = None  # by its agent
    first_at: float | None = None
    last_at: float | None = None


class JobFolder:
    """A job's archived folder. `name` is its path in the archive, for `tell`. Each table may be read again."""

    def __init__(self, name: str, open_file: Open, tell: Tell) -> None:
        self.name = name
        self._open_file = open_file
        self._tell = tell
        self._keys: dict[str, set[Any]] = {}  # of the records that were read
        self.found = Found()

    def read_row(self) -> Record | None:
        """The job's row, value by value what fits; None where it is not there, or cannot be read. Raises Unfit for a later format."""
        data = self.read_document(layout.JOB)
        if data is None:
            return None
        if isinstance(data.get("format"), int) and data["format"] > layout.FORMAT:
            raise Unfit(
                f"it was written in the later format {data['format']}: import it with a newer version"
            )
        given = data.get("row")
        if not isinstance(given, dict):
            self.tell(layout.JOB, None, "without the job's row")
            return None
        row: Record = {}
        for column in jobs.columns:
            if column.name in KEPT and column.name in given:
                try:
                    row[column.name] = fit(column, given[column.name])
                except Unfit as error:
                    self.tell(layout.JOB, None, f"{error}: replaced")
        return row

    def read_inputs(self) -> tuple[str, Record] | None:
        """The instruction and the frozen piece."""
        data = self.read_document(layout.INPUTS)
        if data is None:
            return None
        if not isinstance(data.get("instruction"), str) or not isinstance(data.get("piece"), dict):
            self.tell(layout.INPUTS, None, "without instruction or piece")
            return None
        return data["instruction"], data["piece"]

    def read_document(self, name: str) -> Record | None:
        """A file that is one JSON object; None, and told, where it is none; None where it is not there."""
        raw = self._read(name)
        if raw is None:
            return None
        try:
            data = json.loads(raw.decode())
        except (ValueError, RecursionError):
            self.tell(name, None, "is no JSON, left out")
            return None
        if not isinstance(data, dict):
            self.tell(name, None, "is no object, left out")
            return None
        return data

    def read_text(self, name: str) -> str | None:
        """A file that is plain text, its broken characters replaced."""
        raw = self._read(name)
        return None if raw is None else raw.decode(errors="replace")

    def _read(self, name: str) -> bytes | None:
        file = self.open(name)
        if file is None:
            return None
        with file:
            raw = file.read(MOST_DOCUMENT + 1)
        if len(raw) > MOST_DOCUMENT:
            self.tell(name, None, f"has more than {MOST_DOCUMENT >> 20} MiB, left out")
            return None
        return raw

    def open(self, name: str) -> BinaryIO | None:
        try:
            return self._open_file(name)
        except (SostenutoError, OSError) as error:
            self.lose(name, None, f"cannot be read: {error}")
            return None

    def tell(self, file: str, line: int | None, what: str) -> None:
        self._tell(Problem(f"{self.name}/{file}", line, what))

    def lose(self, file: str, line: int | None, what: str) -> None:
        """Tells of a record, or a file, that is missing now."""
        self.found.lost.add(file)
        self.tell(file, line, what)

    # --- the rows of each table ---

    def tables(self) -> Iterator[tuple[sa.Table, Record]]:
        """All rows of the job but its own, each with its table, in the order in which they may be inserted."""
        for table, rows in (
            (messages, self.messages()),
            (tool_calls, self._own(layout.TOOL_CALLS, tool_calls, ("call_id",), ("message_seq", "position"))),
            (summaries, self._summaries()),
            (plans, self._plans()),
            (comments, self._own(layout.COMMENTS, comments, ("number",))),
            (job_events, self._own(layout.EVENTS, job_events, ("seq",))),
            (runs, self._own(layout.RUNS, runs, ("id",))),
            (images, self._images()),
        ):
            for row in rows:
                yield table, row

    def messages(self) -> Iterator[Record]:
        """The transcript, in the order of the file."""
        more = _Beside(self._records(layout.MORE_OF_MESSAGES, ("seq",)), "seq")
        for line, record in self._records(layout.MESSAGES, ("seq", "role"), expected=True):
            beside = more.of(record["seq"])
            kind = "gap" if record["role"] == "user" else record["role"]
            usual = {"visit": 1, "kind": kind, "run_id": IMPORT_RUN, "created_at": self._time(record)}
            said = {name: record.get(name) for name in ("seq", "role", "content")}
            calls = _calls(record)
            more_said = calls | {"tool_name": record.get("tool_name"), "tokens": record.get("tokens") or 0}
            row = self._fit(
                layout.MESSAGES,
                line,
                messages,
                usual | beside | said | more_said,
                usual | said | more_said,
                usual | said | calls,
            )
            if row is not None and self._is_new(layout.MESSAGES, line, "messages", row["seq"]):
                self._note_said(row)
                yield row

    def _time(self, record: Record) -> float:
        at = layout.seconds_of(record.get("timestamp") or record.get("created_at"))
        return at if at is not None else self.found.last_at or 0.0

    def _note_said(self, row: Record) -> None:
        found = self.found
        if row["role"] == "user" and row["content"] and found.first_said is None:
            found.first_said = row["content"]
        if row["role"] == "assistant" and row["content"]:
            found.last_said = row["content"]
        found.first_at = row["created_at"] if found.first_at is None else found.first_at
        found.last_at = row["created_at"]

    def _summaries(self) -> Iterator[Record]:
        more = _Beside(self._records(layout.MORE_OF_SUMMARIES, ("id",)), "id")
        for line, record in self._records(layout.SUMMARIES, ("id", "summary"), expected=True):
            usual = {
                "kind": "compaction", "visit": 1, "first_seq": 0, "last_seq": 0, "tokens": 0, "tokens_after": 0,
                "tokens_before": record.get("tokens_saved") or 0, "created_at": self._time(record),
            }  # fmt: skip
            count = record.get("compressed_message_count") or 0
            said = {"number": record["id"], "content": record["summary"], "message_count": count}
            beside = more.of(record["id"])
            row = self._fit(layout.SUMMARIES, line, summaries, usual | beside | said, usual | said)
            if row is not None and self._is_new(layout.SUMMARIES, line, "summaries", row["number"]):
                yield row

    def _plans(self) -> Iterator[Record]:
        more = _Beside(self._records(layout.MORE_OF_PLANS, ("id",)), "id")
        for line, record in self._records(
            layout.PLANNING, ("id", "plan_type", "plan_content"), expected=True
        ):
            usual = {"seq": record["id"], "created_at": self._time(record)}
            said = {name: record[name] for name in ("plan_type", "plan_content")}
            beside = more.of(record["id"])
            row = self._fit(layout.PLANNING, line, plans, usual | beside | said, usual | said)
            if row is not None and self._is_new(layout.PLANNING, line, "plans", row["seq"]):
                yield row

    def _own(self, file: str, table: sa.Table, *keys: Sequence[str]) -> Iterator[Record]:
        """The rows of one of our tables: none of `keys` twice."""
        seen: set[tuple[Any, ...]] = set()
        for line, record in self._records(file, keys[0]):
            row = self._fit(file, line, table, record)
            if row is None:
                continue
            marks = {(number, *(row[name] for name in key)) for number, key in enumerate(keys)}
            if marks & seen:
                self.lose(file, line, "is there already, the second one skipped")
                continue
            seen |= marks
            number = row[keys[0][0]]
            if isinstance(number, int):
                self._count(table.name, number)
            yield row

    def _images(self) -> Iterator[Record]:
        for line, record in self._records(layout.IMAGES, ("sha", "media_type")):
            sha = str(record["sha"])
            data = self._image(sha)
            if data is None or hashlib.sha256(data).hexdigest() != sha:
                self.lose(layout.IMAGES, line, "an image whose bytes are missing or changed, skipped")
                continue
            row = self._fit(layout.IMAGES, line, images, record | {"data": data, "size": len(data)})
            if row is not None and self._is_new(layout.IMAGES, line, "images", sha):
                yield row

    def _image(self, sha: str) -> bytes | None:
        return self._read(f"{layout.IMAGE_FOLDER}/{sha}") if sha.isalnum() and sha.isascii() else None

    def _records(
        self, name: str, needed: Sequence[str], *, expected: bool = False
    ) -> Iterator[tuple[int, Record]]:
        file = self.open(name)
        if file is None:
            if expected and name not in self.found.lost:
                self.lose(name, None, "is missing")
            return

        def tell(problem: Problem) -> None:
            self.found.lost.add(name)
            self._tell(problem)

        with closing(file):
            yield from read_records(file, f"{self.name}/{name}", tell, needed)

    def _fit(self, file: str, line: int, table: sa.Table, *records: Record) -> Record | None:
        """The row of the first of these that fits: each says less than the one before."""
        problem = ""
        for record in records:
            try:
                row = usual_row(table, record)
            except Unfit as error:
                problem = problem or str(error)
                continue
            if problem:
                self.lose(file, line, f"{problem}: read without it")
            return row
        self.lose(file, line, f"{problem}, skipped")
        return None

    def _is_new(self, file: str, line: int, table: str, key: Any) -> bool:
        """Whether no record had this key before; the second one is told."""
        if key in self._seen(table):
            self.lose(file, line, f"{key} is there already, the second one skipped")
            return False
        self._seen(table).add(key)
        if isinstance(key, int):
            self._count(table, key)
        return True

    def _count(self, table: str, number: int) -> None:
        self.found.last[table] = max(number, self.found.last.get(table, 0))

    def _seen(self, table: str) -> set[Any]:
        return self._keys.setdefault(table, set())

    def again(self) -> JobFolder:
        """The same folder, read anew, its problems told to nobody: they have been."""
        return JobFolder(self.name, self._open_file, lambda _: None)


def _calls(record: Record) -> Record:
    """A message's calls, or the call that it answers, in our shape: other programs leave the ids out."""
    if record["role"] == "tool":
        call_id = record.get("tool_call_id")
        return {"tool_call_id": f"{IMPORT_RUN}-{record['seq']}" if call_id is None else call_id}
    calls = record.get("tool_calls")
    if not isinstance(calls, list):
        return {"tool_calls": calls}
    return {"tool_calls": [_call(call) for call in calls]}


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}


class _Beside:
    """The records of a file beside another one, found by their key: both are in the same order, as a rule."""

    def __init__(self, records: Iterable[tuple[int, Record]], key: str) -> None:
        self._records = iter(records)
        self._key = key
        self._waiting: dict[Any, Record] = {}

    def of(self, key: Any) -> Record:
        """The record of this key without it; empty where there is none."""
        if type(key) is not int:
            return {}
        while key not in self._waiting:
            found = next(self._records, None)
            if found is None:
                return {}
            number = found[1].pop(self._key)
            if type(number) is int:
                self._waiting.setdefault(number, found[1])
                if number > key:
                    break
        return self._waiting.pop(key, {})
