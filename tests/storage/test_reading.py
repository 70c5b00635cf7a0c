"""What a run reads of its job's past costs the same, however long that past is: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from benchmarks.database_work import DatabaseWork
from jobs.checklists import current_checklists
from jobs.todos import current_todos
from storage import transcript
from storage.engine import Database
from storage.models import messages, tool_calls
from storage.records import NewMessage, RunRef
from tests import factories
from tests.factories import commit, returned, said
from tests.storage.plans import analyse

SHORT, LONG = 400, 4_000  # messages between what a run reads
TODOS = '{"todos": [{"id": 1, "content": "x", "status": "pending"}]}'
MORE = 1.5  # times the count at SHORT, and as much again for the noise of a small one


def test_a_view_after_a_compaction(db: Database) -> None:
    """The rows between the head and the kept tail are what a summary stands for: they are not read."""

    def read(run: RunRef) -> None:
        row = factories.job_now(db, run.job_id)
        kept = row["total_messages"] - 3
        view = transcript.load_view(db, run.job_id, row["visit_seq"], kept, kept + 1)
        assert [message.kind for message in view[:3]] == ["system", "head", "head"]
        assert [message.seq for message in view[3:]] == [*range(kept, kept + 4)]

    _assert_flat(db, read)


def test_todos_that_were_written_long_ago(db: Database) -> None:
    def read(run: RunRef) -> None:
        assert [todo.id for todo in current_todos(db, run.job_id).items] == ["1"]

    _assert_flat(db, read)


def test_checklists_that_were_never_made(db: Database) -> None:
    def read(run: RunRef) -> None:
        assert current_checklists(db, run.job_id) == {}

    _assert_flat(db, read)


def test_a_reminder_that_was_given_long_ago(db: Database) -> None:
    def read(run: RunRef) -> None:
        assert transcript.any_gap(db, run.job_id, 4, lambda extra: extra.get("reminder") == "todos")

    _assert_flat(db, read)


def _assert_flat(db: Database, read: Callable[[RunRef], Any]) -> None:
    """`read` of a job with a long past takes about as much of the database as of one with a short past."""
    work = DatabaseWork(db)
    counts = []
    for length in (SHORT, LONG):
        run = _job(db, length)
        analyse(db)
        before = work.so_far()
        for _ in range(10):
            read(run)
        counts.append(work.so_far() - before)
    short, long = counts
    assert long <= short * MORE + 1, f"{short} {work.unit} became {long}"


def _job(db: Database, length: int) -> RunRef:
    """One visit: a head, a todo list, a reminder of it, then `length` messages of calls and results."""
    run = factories.running_job(db)
    heads = [NewMessage("user", "head", text) for text in ("Now.", "Do it.")]
    commit(db, run, NewMessage("system", "system", "You are."), *heads, begins_visit=True)
    commit(db, run, said(None, ("todos", "todo_write", TODOS)))
    commit(db, run, returned("todos", "written", name="todo_write"))
    commit(db, run, NewMessage("user", "gap", "Remember.", extra={"reminder": "todos"}))
    first = factories.job_now(db, run.job_id)["total_messages"] + 1
    common = {"job_id": run.job_id, "visit": 0, "run_id": run.run_id, "created_at": 0.0}
    rows, calls = [], []
    for seq in range(first, first + length, 4):
        call = f"past_{seq}"
        rows += [
            common | {"seq": seq, "role": "assistant", "kind": "assistant", "content": "x", "tool_call_id": None, "extra": None},
            common | {"seq": seq + 1, "role": "tool", "kind": "tool", "content": "y", "tool_call_id": call, "extra": None},
            common | {"seq": seq + 2, "role": "user", "kind": "gap", "content": "z", "tool_call_id": None, "extra": {"reminder": "loop"}},
            common | {"seq": seq + 3, "role": "assistant", "kind": "assistant", "content": "x", "tool_call_id": None, "extra": None},
        ]  # fmt: skip
        calls.append({
            "job_id": run.job_id, "call_id": call, "message_seq": seq, "position": 0, "name": "Bash",
            "arguments": "{}", "state": "done", "result_seq": seq + 1, "is_error": False,
        })  # fmt: skip
    with db.write() as conn:
        conn.execute(sa.insert(messages), rows)
        conn.execute(sa.insert(tool_calls), calls)
    factories.set_columns(db, run.job_id, total_messages=first - 1 + length)
    return run
