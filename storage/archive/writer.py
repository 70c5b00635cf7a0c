"""From the database to a job's folder: one consistent snapshot, streamed, whatever the length of the transcript.

A folder is written beside its place and renamed into it. `Places` makes it durable; who deletes a job afterwards calls
`settle` first.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.archive import layout
from storage.archive.layout import line, timestamp
from storage.archive.rows import EXPORTED, archived_row, stream
from storage.engine import Database
from storage.errors import JobNotFound
from storage.models import (
    comments,
    images,
    job_events,
    job_inputs,
    jobs,
    messages,
    plans,
    runs,
    summaries,
    tool_calls,
)
from storage.records import Message
from storage.text import clean_json
from storage.transcript import load_view_in

# Columns that lie in our own folder only, beside what every reader of the archive sees of the same row.
MORE_OF_MESSAGE = ("visit", "kind", "is_error", "extra", "run_id", "created_at")
MORE_OF_SUMMARY = (
    "kind", "model", "visit", "message_seq", "first_seq", "last_seq", "tokens", "tokens_before", "tokens_after",
    "prompt_tokens", "completion_tokens", "cost", "created_at",
)  # fmt: skip
# The messages of a request, made of the rows of a view and `trim_seq`.
Render = Callable[[Sequence[Message], int], list[dict[str, Any]]]


def write_job(db: Database, job_id: str, folder: Path, render: Render) -> dict[str, Any]:
    """Writes all that the database holds of a job into an empty folder; returns its archived row.

    The rows are of one moment. Raises JobNotFound, OSError or StorageError; then the folder is unfinished.
    """
    (folder / layout.OURS).mkdir()
    with db.snapshot() as conn:
        found = conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).one_or_none()
        if found is None:
            raise JobNotFound(job_id)
        row = archived_row(found._asdict())
        inputs = conn.execute(sa.select(job_inputs).where(job_inputs.c.job_id == job_id)).one()
        (folder / layout.METADATA).write_bytes(layout.document(layout.metadata_of(row)))
        _write_ours(folder, layout.JOB, {"format": layout.FORMAT, "row": row})
        _write_ours(
            folder, layout.INPUTS, clean_json({"instruction": inputs.instruction, "piece": inputs.piece})
        )
        _write_messages(conn, job_id, folder)
        _write_tools(conn, job_id, folder)
        _write_summaries(conn, row, folder)
        _write_plans(conn, job_id, folder)
        _write_lines(folder / layout.COMMENTS, _own(conn, comments, job_id, comments.c.number))
        _write_lines(folder / layout.EVENTS, _own(conn, job_events, job_id, job_events.c.seq))
        _write_lines(folder / layout.RUNS, _ended_runs(conn, row))
        _write_images(conn, job_id, folder)
        if layout.folder_of(row["state"]) != layout.COMPLETED:
            view = load_view_in(conn, job_id, row["visit_seq"], row["tail_seq"], row["summary_seq"])
            sent = render(view, row["trim_seq"]) if row["visit_seq"] else []
            _write_lines(folder / layout.CURRENT, clean_json(sent), always=True)
    return row


def _write_ours(folder: Path, name: str, data: dict[str, Any]) -> None:
    (folder / name).write_bytes(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def _write_lines(
    path: Path, records: Iterator[dict[str, Any]] | list[dict[str, Any]], *, always: bool = False
) -> None:
    """A file of these records; none where there are none, unless `always`."""
    file: BinaryIO | None = path.open("wb") if always else None
    try:
        for record in records:
            file = file or path.open("wb")
            file.write(line(record))
    finally:
        if file is not None:
            file.close()


def _own(conn: Connection, table: sa.Table, job_id: str, *order: sa.Column[Any]) -> Iterator[dict[str, Any]]:
    """The rows of one of our tables as they are, without the job's id."""
    columns = [column for column in table.columns if column.name != "job_id"]
    return stream(conn, sa.select(*columns).order_by(*order), job_id, table)


def _write_messages(conn: Connection, job_id: str, folder: Path) -> None:
    with ExitStack() as files:
        all_see = files.enter_context((folder / layout.MESSAGES).open("wb"))
        ours = files.enter_context((folder / layout.MORE_OF_MESSAGES).open("wb"))
        for row in stream(conn, sa.select(messages).order_by(messages.c.seq), job_id, messages):
            record = {
                "seq": row["seq"],
                "role": row["role"],
                "content": row["content"],
                "timestamp": timestamp(row["created_at"]),
                "tokens": row["tokens"],
            }
            optional = ("tool_name", "tool_calls", "tool_call_id")
            record |= {name: row[name] for name in optional if row[name] is not None}
            all_see.write(line(record))
            ours.write(line({"seq": row["seq"], **{name: row[name] for name in MORE_OF_MESSAGE}}))


def _write_tools(conn: Connection, job_id: str, folder: Path) -> None:
    result = messages.alias("result")
    columns = [column for column in tool_calls.columns if column.name != "job_id"]
    asked_at = sa.select(messages.c.created_at).where(
        messages.c.job_id == tool_calls.c.job_id, messages.c.seq == tool_calls.c.message_seq
    )
    statement = (
        sa.select(*columns, result.c.content, asked_at.scalar_subquery().label("asked_at"))
        .join_from(
            tool_calls,
            result,
            sa.and_(result.c.job_id == tool_calls.c.job_id, result.c.seq == tool_calls.c.result_seq),
            isouter=True,
        )
        .order_by(tool_calls.c.message_seq, tool_calls.c.position)
    )
    with ExitStack() as files:
        all_see = files.enter_context((folder / layout.TOOLS).open("wb"))
        ours = files.enter_context((folder / layout.TOOL_CALLS).open("wb"))
        for number, row in enumerate(stream(conn, statement, job_id, tool_calls), start=1):
            content, asked = row.pop("content"), row.pop("asked_at")
            at = row["ended_at"] or row["started_at"] or asked
            record = {
                "seq": number,
                "tool_name": row["name"],
                "arguments": _object(row["arguments"]),
                "result": content,
                "error": content if row["is_error"] else None,
                "timestamp": None if at is None else timestamp(at),
            }
            all_see.write(line(record))
            ours.write(line(row))


def _object(arguments: str) -> dict[str, Any]:
    """A call's arguments; those that are none stand in messages.jsonl as the model wrote them."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return clean_json(found) if isinstance(found, dict) else {}


def _write_summaries(conn: Connection, row: dict[str, Any], folder: Path) -> None:
    final = None
    with ExitStack() as files:
        all_see = files.enter_context((folder / layout.SUMMARIES).open("wb"))
        ours = files.enter_context((folder / layout.MORE_OF_SUMMARIES).open("wb"))
        statement = sa.select(summaries).order_by(summaries.c.number)
        for found in stream(conn, statement, row["id"], summaries):
            record = {
                "id": found["number"],
                "summary": found["content"],
                "compressed_message_count": found["message_count"],
                "tokens_saved": max(found["tokens_before"] - found["tokens_after"], 0),
                "created_at": timestamp(found["created_at"]),
            }
            all_see.write(line(record))
            ours.write(line({"id": found["number"], **{name: found[name] for name in MORE_OF_SUMMARY}}))
            final = found["content"] if found["kind"] == "final" else final
    if final is not None and row["summary_state"] == "done":
        (folder / layout.FINAL_SUMMARY).write_bytes(final.encode())


def _write_plans(conn: Connection, job_id: str, folder: Path) -> None:
    with ExitStack() as files:
        all_see = files.enter_context((folder / layout.PLANNING).open("wb"))
        ours = files.enter_context((folder / layout.MORE_OF_PLANS).open("wb"))
        found = stream(conn, sa.select(plans).order_by(plans.c.seq), job_id, plans)
        for number, row in enumerate(found, start=1):
            told = {name: row[name] for name in ("plan_type", "plan_content")}
            all_see.write(line({"id": number, **told, "created_at": timestamp(row["created_at"])}))
            ours.write(line({"id": number, "seq": row["seq"], "created_at": row["created_at"]}))


def _ended_runs(conn: Connection, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The job's runs; one that is going on ends here, for the archive."""
    for run in _own(conn, runs, row["id"], runs.c.claimed_at, runs.c.id):
        if run["ended_at"] is None:
            run |= {"ended_at": row["updated_at"], "outcome": EXPORTED}
        yield run


def _write_images(conn: Connection, job_id: str, folder: Path) -> None:
    names = sa.select(images.c.sha, images.c.media_type, images.c.size).order_by(images.c.sha)
    found = list(stream(conn, names, job_id, images))
    _write_lines(folder / layout.IMAGES, found)
    for image in found:
        (folder / layout.IMAGE_FOLDER).mkdir(exist_ok=True)
        wanted = sa.select(images.c.data).where(images.c.job_id == job_id, images.c.sha == image["sha"])
        (folder / layout.IMAGE_FOLDER / image["sha"]).write_bytes(conn.execute(wanted).scalar_one())


class Places:
    """The folders of an archive: where a job is written, and how it comes to its place."""

    def __init__(self, root: Path) -> None:
        self.contexts = root / layout.CONTEXTS
        for name in layout.FOLDERS:
            (self.contexts / name).mkdir(parents=True, exist_ok=True)
        self.mend()

    def mend(self) -> None:
        """What a writer that died left: half-written folders go; a folder that was to be replaced comes back."""
        for name in layout.FOLDERS:
            for path in (self.contexts / name).glob(".*.partial"):
                shutil.rmtree(path)
            for path in (self.contexts / name).glob(".*.old"):
                before = path.with_name(path.name[1:].removesuffix(".old"))
                if before.exists():
                    shutil.rmtree(path)
                else:
                    path.rename(before)

    def begin(self, job_id: str) -> Path:
        """An empty folder to write the job into."""
        partial = self.contexts / layout.RUNNING / f".{job_id}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        return partial

    def give_up(self, partial: Path) -> None:
        """Removes a folder that is not to be placed."""
        shutil.rmtree(partial)

    def settle(self) -> None:
        """What has been written is on the disk when this returns. Raises OSError."""
        sync_disk(self.contexts)

    def place(self, job_id: str, partial: Path, state: str) -> Path:
        """Renames the job's folder into its place. It comes from one of the three folders where it is there already."""
        place = self.contexts / layout.folder_of(state) / job_id
        for name in layout.FOLDERS:
            earlier = self.contexts / name / job_id
            if earlier != place and earlier.exists():
                if place.exists():
                    shutil.rmtree(earlier)
                else:
                    earlier.rename(place)
        old = place.with_name(f".{job_id}.old")
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        partial.rename(place)
        shutil.rmtree(old, ignore_errors=True)
        return place

    def job_folders(self) -> Iterator[tuple[str, Path]]:
        """(folder, path) of every job of the archive."""
        for name in layout.FOLDERS:
            for path in sorted((self.contexts / name).iterdir()):
                if not path.name.startswith(".") and path.is_dir() and not path.is_symlink():
                    yield name, path


def sync_disk(folder: Path) -> None:
    """Everything that was written to this folder's file system is on its disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if sys.platform != "linux":
            os.sync()
            return
        libc = ctypes.CDLL(None, use_errno=True)  # one call for thousands of small files
        if libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(fd)
