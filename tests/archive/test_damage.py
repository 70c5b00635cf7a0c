"""Archives of which any byte may be wrong: what can be read is read, each broken record is told with file and line."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.installation import Installation
from jobs.lifecycle import Budget, cancel, resume
from jobs.states import State
from jobs.views import get_job
from storage.archive.lines import MOST_LINE, parse_line
from storage.models import comments, job_events, messages, plans
from tests.archive.conftest import open_at
from tests.archive.making import ended_job, export, rich_job, take
from tests.factories import rows_of

NEXT = b'{"seq":8,"role":"user","content":"next","timestamp":"2026-01-01T00:00:00Z","tokens":1}\n'
TRANSCRIPT = 6  # messages of a rich job

LINES: dict[str, tuple[bytes, str, bool]] = {
    # what stands in the transcript after its six lines; what is told; whether the next record is read
    "half a line at the end": (b'{"seq":7,"ro', "half a line, skipped", False),
    "half a line, then a record": (b'{"seq":7,"ro\n' + NEXT, "no JSON, skipped", True),
    "half a line and a record on one line": (b'{"seq":7,"ro' + NEXT, "the record behind it on the same line was read", True),
    "a run of NULs": (b"\0" * 4096 + b"\n" + NEXT, "a run of NULs, skipped", True),
    "NULs before a record": (b"\0" * 4096 + NEXT, "a run of NULs beside a record, left out", True),
    "half a line, NULs, a record": (b'{"seq":7,"ro' + b"\0" * 99 + NEXT, "the record behind it", True),
    "a cut character": (b'{"seq":7,"role":"user","content":"\xe6\x98"}\n' + NEXT, "UTF-8 character, skipped", True),
    "a list": (b"[1,2]\n" + NEXT, "no object, skipped", True),
    "no number": (b'{"role":"user","content":"x"}\n' + NEXT, "without seq, skipped", True),
    "a number twice": (b'{"seq":6,"role":"user","content":"x"}\n' + NEXT, "6 is there already", True),
    "a number that is text": (b'{"seq":"7","role":"user","content":"x"}\n' + NEXT, "seq is str, not int, skipped", True),
    "a number out of range": (b'{"seq":99999999999,"role":"user","content":"x"}\n' + NEXT, "seq is out of range", True),
    "less than nothing": (b'{"seq":-1,"role":"user","content":"x"}\n' + NEXT, "seq is out of range, skipped", True),
    "a role that is none": (b'{"seq":7,"role":"king","content":"x"}\n' + NEXT, "role 'king' is not known", True),
    "content that is none": (b'{"seq":7,"role":"user","content":{"a":1}}\n' + NEXT, "content is dict, not str", True),
    "depth": (b'{"seq":7,"role":"user","content":' + b"[" * 99_999 + b"\n" + NEXT, "skipped", True),
    "a number of 9,999 digits": (b'{"seq":' + b"9" * 9_999 + b',"role":"user"}\n' + NEXT, "skipped", True),
}  # fmt: skip


@pytest.fixture
def archive(here: Installation, tmp_path: Path) -> Path:
    """A running job, and one that succeeded."""
    export(here, tmp_path / "one", [rich_job(here).job_id, ended_job(here)])
    return tmp_path / "one"


def job_folder(archive: Path, state: str = "running") -> Path:
    (found,) = (archive / "contexts" / state).iterdir()
    return found


def test_each_kind_of_broken_line_is_told_and_the_next_record_is_read(
    there: Installation, archive: Path, tmp_path: Path
) -> None:
    """A half-written last record, a cut character, NULs, wrong types, numbers twice: every kind in a job of its own."""
    template, wanted = job_folder(archive), {}
    for number, (kind, (tail, told, _)) in enumerate(LINES.items()):
        folder = template.with_name(f"job-{number:02}")
        shutil.copytree(template, folder)
        with (folder / "messages.jsonl").open("ab") as file:
            file.write(tail)
        wanted[folder.name] = (kind, told)
    shutil.rmtree(template)

    jobs, problems = take(there, archive)

    outcomes = {job.job_id: job for job in jobs if job.job_id in wanted}
    for job_id, (kind, told) in wanted.items():
        job = outcomes[job_id]
        assert (job.outcome, job.state, job.anew) == ("imported", State.PAUSED, True), kind
        own = [
            text
            for text in problems
            if text.startswith(f"running/{job_id}/messages.jsonl:{TRANSCRIPT + 1}: ")
        ]
        assert any(told in text for text in own), (kind, own)
        seqs = [row["seq"] for row in rows_of(there.db, messages, job_id)]
        read = [*range(1, TRANSCRIPT + 1)] + [8] * LINES[kind][2]
        assert seqs == read, kind


def test_a_line_without_an_end_is_passed_over(there: Installation, archive: Path) -> None:
    """Not read into memory as a whole; the record after it is read."""
    with (job_folder(archive) / "messages.jsonl").open("ab") as file:
        for _ in range(MOST_LINE // (1 << 20) + 2):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + NEXT)
    _, problems = take(there, archive)
    assert any(
        text.endswith(f"messages.jsonl:{TRANSCRIPT + 1}: a line of more than 64 MiB, skipped")
        for text in problems
    )
    assert rows_of(there.db, messages, job_folder(archive).name)[-1]["content"] == "next"


MISSING = (
    "metadata.json", "messages.jsonl", "current.jsonl", "summaries.jsonl", "tools.jsonl", "planning.jsonl", "sostenuto/job.json",
    "sostenuto/inputs.json", "sostenuto/messages.jsonl", "sostenuto/tool_calls.jsonl", "sostenuto/events.jsonl",
    "sostenuto/images.jsonl", "sostenuto/workspace.jsonl",
)  # fmt: skip


def test_any_file_may_be_missing_or_junk(there: Installation, archive: Path) -> None:
    """The job comes all the same, with what the others tell; without its conversation it is paused, and can be resumed."""
    template = job_folder(archive)
    for number, name in enumerate(MISSING):
        for junk in (None, b"\xff\0{[", b'{"format": 1, "row": 7, "instruction": [], "piece": {"name": 4}}'):
            folder = template.with_name(f"job-{number:02}-{len(junk or b'')}")
            shutil.copytree(template, folder)
            (folder / name).unlink()
            if junk is not None:
                (folder / name).write_bytes(junk)
    (archive / "contexts/tasks.db").write_bytes(b"SQLite format 3\0 or not")

    jobs, problems = take(there, archive)

    assert [job for job in jobs if job.outcome != "imported"] == []
    assert any(text.startswith("tasks.db: cannot be read") for text in problems)
    for job in jobs:
        if job.anew:
            assert resume(there, job.job_id, None, "ann", Budget()).state == State.QUEUED
        assert get_job(there, job.job_id, None).as_dict()["state"] != State.RUNNING
        name = MISSING[int(job.job_id.split("-")[1])] if job.job_id.count("-") == 2 else ""
        if name not in ("messages.jsonl", ""):
            assert len(rows_of(there.db, messages, job.job_id)) == TRANSCRIPT, name
        if name not in ("planning.jsonl", ""):
            assert [row["plan_type"] for row in rows_of(there.db, plans, job.job_id)] == ["initial"], name


VALUES: dict[str, Any] = {
    "state": "running", "reason": "no such reason", "reason_data": {"until": "soon", "limit": "much"}, "resume_state": "gone",
    "priority": 2**40, "available_at": 1e300, "created_at": -5, "completed_at": 12.0, "visit_seq": 99, "tail_seq": -7,
    "movement": "nowhere", "total_messages": 2**29, "event_seq": -1, "inbox_seen": 50, "inbox_total": -3, "children_open": 5,
    "attempt": True, "cost": "free", "depth": 2**29, "owner": "x" * 9999, "title": None, "pending_question": {"question": 7},
    "parent_id": "../../etc", "inherits_from": "\0", "task_type": 3, "metadata": [1], "context_marks": "x", "cost_known": 1,
    "summary_state": "lost", "steps": 1.5, "answer_due_at": 5.0, "piece": None, "id": "another", "shell_folder": [],
}  # fmt: skip


def test_hostile_values_of_a_row_never_harm_those_who_read_it(there: Installation, archive: Path) -> None:
    """Each of them alone, and all of them at once: the job can be shown, cancelled and listed."""
    template = job_folder(archive)
    for number, (name, value) in enumerate([*VALUES.items(), ("all", None)]):
        folder = template.with_name(f"job-{number:02}")
        shutil.copytree(template, folder)
        data = json.loads((folder / "sostenuto/job.json").read_text())
        data["row"] |= VALUES if name == "all" else {name: value}
        (folder / "sostenuto/job.json").write_text(json.dumps(data))

    jobs, _ = take(there, archive)

    assert [job for job in jobs if job.outcome != "imported"] == []
    for job in jobs:
        view = get_job(there, job.job_id, None)
        assert view.as_dict()["id"] == job.job_id
        if State(view.state) is not State.SUCCEEDED:
            assert cancel(there, job.job_id, None, "ann").state == State.CANCELLED


@pytest.fixture(scope="module")
def readable(tmp_path_factory: pytest.TempPathFactory, _migrated_sqlite: Path) -> tuple[Path, str, Path]:
    """An archive that is whole, the id of its job, and an empty database to copy."""
    folder = tmp_path_factory.mktemp("readable")
    shutil.copyfile(_migrated_sqlite, folder / "here.db")
    home = open_at(f"sqlite:///{folder}/here.db", folder / "here")
    run = rich_job(home)
    export(home, folder / "one", [run.job_id])
    home.close()
    return folder / "one", run.job_id, _migrated_sqlite


def _cut(data: bytes, at: random.Random) -> bytes:
    return data[: at.randrange(len(data))]


def _flip(data: bytes, at: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(at.choice([1, 1, 3, 30])):
        changed[at.randrange(len(changed))] = at.choice([0, 10, 34, 0x7B, 0xFF, at.randrange(256)])
    return bytes(changed)


def _nuls(data: bytes, at: random.Random) -> bytes:
    start = at.randrange(len(data))
    return data[:start] + b"\0" * at.choice([1, 9, 4096]) + data[start + at.choice([0, 7, 500]) :]


def _splice(data: bytes, at: random.Random) -> bytes:
    start, end = sorted(at.randrange(len(data)) for _ in range(2))
    return data[:start] + data[end:] if at.random() < 0.5 else data[:end] + data[start:]


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_cut, _flip, _nuls, _splice)
TABLES = {"messages.jsonl": (messages, "seq"), "sostenuto/comments.jsonl": (comments, "number"),
    "sostenuto/events.jsonl": (job_events, "seq")}  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3))
def test_whatever_bytes_are_wrong_nothing_readable_is_lost(
    readable: tuple[Path, str, Path], tmp_path_factory: pytest.TempPathFactory, seed: int, count: int
) -> None:
    """Files are cut, bytes changed, wiped, lost, doubled: no traceback, every readable record is there, every other is told."""
    source, job_id, database = readable
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(source, folder / "one", symlinks=True)
    at = random.Random(seed)
    files = sorted(path for path in (folder / "one").rglob("*.json*"))
    for path in at.sample(files, count):
        data = path.read_bytes()
        if data:
            path.write_bytes(at.choice(CHANGES)(data, at))
    shutil.copyfile(database, folder / "there.db")
    there = open_at(f"sqlite:///{folder}/there.db", folder / "there")
    try:
        jobs, problems = take(there, folder / "one")
        assert [job.outcome for job in jobs] == ["imported"]
        assert all(re.match(r"(running/\S+?|tasks\.db)(:\d+)?: \S", text) for text in problems)
        home = folder / "one/contexts/running" / job_id
        for name, (table, key) in TABLES.items():
            stored = {row[key] for row in rows_of(there.db, table, job_id)}
            for number, raw in enumerate(io.BytesIO((home / name).read_bytes()), 1):  # by \n alone
                record, _ = parse_line(raw, (key,))
                told = any(text.startswith(f"running/{job_id}/{name}:{number}: ") for text in problems)
                kept = record is not None and record[key] in stored
                assert kept or told or not raw.strip(), (name, number, raw, problems)
        if jobs[0].anew:
            assert jobs[0].state == State.PAUSED
        get_job(there, job_id, None).as_dict()
    finally:
        there.close()
        shutil.rmtree(folder)
