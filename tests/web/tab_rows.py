"""A job with something in every tab of its page, written as a worker would have written it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jobs import comments
from jobs.installation import Installation
from jobs.workspace import InputFile, workspace_path
from storage import live
from storage.engine import wall_clock
from storage.models import job_events, messages, runs, tool_calls
from storage.records import Commit, NewEvent, NewImage, NewMessage, NewPlan, NewSummary
from tests.factories import make_job, set_columns
from tests.web.rows import Past

PARSE = 'def parse(line: str) -> list[float]:\n    """Figures of a line."""\n    return [float(part) for part in line.split(",")]\n'
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000020000000208020000"
    "00fdd49a730000001649444154789c63fccfc0c0c0c0c0f0ff3f0303030300180b0301"
    "a2d4e1a90000000049454e44ae426082"
)


def rich_job(where: Installation, picture: bytes = PIXEL) -> str:
    """Running in its second movement, with a compaction behind it and a reply on its way."""
    files = [
        InputFile("parse.py", PARSE.encode()),
        InputFile("data/rain.csv", b"a,1\nb,2\n"),
        InputFile("old.txt", b"gone soon\n"),
    ]
    task = (
        "Mend the parser of the rain figures.\n\nIt fails on empty fields; the code is in `input/parse.py`."
    )
    past = Past(where, task, piece="code-change", files=files, repository="rain")
    past.begin("plan", "You plan changes to code.")
    _plan(past)
    _compact(past)
    _edit(past, picture)
    _change_files(where, past.id)
    for title, state in (("Check the figures of Tokyo", "succeeded"), ("Check those of London", "running")):
        make_job(where.db, state, title=title, parent_id=past.id, depth=1)
    marks = {"usable": 28_000, "compact": 22_400}
    set_columns(
        where.db, past.id, children_total=2, children_open=1, context_marks=marks, context_tokens=20_100, max_steps=40, max_cost=2.5,
        movement="edit",
    )  # fmt: skip
    _spread(where, past.id)
    text = 'The empty field is read as text. I mend `parse` so that it\n\n```python\nreturn [float(part) for part in line.split(",") if part]\n```\n\nand then'
    seq = past.next_seq()
    live.tell_live_if_run_owns(
        where.db,
        past.run,
        seq,
        {
            "text": text,
            "reasoning": "",
            "calls": [{"name": "Edit", "arguments": '{"path": "input/parse.py", "old'}],
            "characters": 214,
        },
    )
    return past.id


def _plan(past: Past) -> None:
    todos = [
        {"id": "1", "content": "Find where it fails", "status": "completed"},
        {"id": "2", "content": "Mend it", "status": "in_progress"},
        {"id": "3", "content": "Run the tests", "status": "pending"},
    ]
    for number in range(4):
        (call,) = past.say(
            f"I look at part {number + 1} of the parser.",
            ("Read", {"path": "input/parse.py", "offset": number * 40}),
        )
        past.answer(call, PARSE, "Read")
    (noted,) = past.say("I note what is to be done.", ("todo_write", {"todos": todos}))
    past.answer(noted, "ok", "todo_write")
    (planned,) = past.say(
        "The plan:", ("plan", {"plan_type": "approach", "plan_content": "1. skip empty fields\n2. test"})
    )
    answer = NewMessage("tool", "tool", "recorded", tool_call_id=planned, tool_name="plan")
    past.write(
        answer, what=Commit.RESULT, plan=NewPlan("approach", "1. Skip **empty** fields\n2. Run the tests")
    )
    comments.add_comment(past.where, past.id, None, "Please keep the *type hints*.", "ann")
    past.write(
        NewMessage("user", "gap", "New comments:\n[1] ann: Please keep the type hints."),
        what=Commit.GAP,
        inbox_seen=1,
    )


def _compact(past: Past) -> None:
    text = "The parser fails on **empty fields** (`float('')`). The plan: skip them, keep the type hints, then run the tests."
    summary = NewSummary(
        "compaction", text, "a-model", 2, 11, 10, 120, tokens_before=23_100, tokens_after=6_400
    )
    past.write(NewMessage("user", "summary", text, tokens=120), what=Commit.SWAP, summary=summary)


def _edit(past: Past, picture: bytes) -> None:
    arguments = {
        "next_step": "edit",
        "summary": "It is known what to change.",
        "lessons": "Empty fields are the **only** fault.",
    }
    (gone,) = past.say("I know enough.", ("transition", arguments))
    handed = NewEvent(
        "transition",
        "agent",
        data={"from": "plan", "to": "edit", "lessons": "Empty fields are the **only** fault."},
    )
    past.answer(gone, "accepted", "transition")
    past.write(what=Commit.TRANSITION, events=[handed], values={"movement": "edit"})
    past.begin("edit", "You change code.")
    bash, image = past.say(
        "The tests first:\n\n```python\ndef test_empty_fields() -> None:\n    assert parse(\"1,,2\") == [1.0, 2.0]  # fails today\n```\n\n| case | now |\n|---|---|\n| `1,,2` | fails |",
        ("Bash", {"command": "python -m pytest -q"}), ("ReadImage", {"path": "output/plot.png"}),
    )  # fmt: skip
    past.answer(bash, "1 failed, 3 passed\n", is_error=True)
    shown = NewImage("a" * 64, "image/png", picture, 640, 360, 300, "output/plot.png")
    answer = NewMessage(
        "tool",
        "tool",
        "shown next",
        tool_call_id=image,
        tool_name="ReadImage",
        extra={"images": [shown.reference()]},
    )
    past.write(answer, what=Commit.RESULT, images=(shown,))
    comments.add_comment(
        past.where, past.id, None, "And add a test for a line that ends with a comma.", "ann"
    )


def _change_files(where: Installation, job_id: str) -> None:
    root = workspace_path(where.settings.data_dir, job_id)
    (root / "input" / "parse.py").write_text(
        PARSE.replace('split(",")]', 'split(",") if part]') + "\n\nEMPTY = 0\n"
    )
    (root / "input" / "old.txt").unlink()
    (root / "output" / "report.md").write_text("# Report\n\nMended.\n")
    (root / "output" / "plots").mkdir()
    (root / "output" / "plots" / "rain.csv").write_text("a,1\n")


def _spread(where: Installation, job_id: str) -> None:
    """As if it had taken minutes: each row a while after the one before."""
    with where.db.write() as conn:
        now = conn.execute(sa.select(wall_clock())).scalar_one()
        rows: list[tuple[float, sa.Table, Any]] = []
        for table, at in ((messages, messages.c.created_at), (job_events, job_events.c.at)):
            found = conn.execute(sa.select(table.c.seq, at).where(table.c.job_id == job_id))
            rows += [(row[1], table, row.seq) for row in found]
        rows.sort(key=lambda row: (row[0], row[1].name == "job_events"))
        for number, (_, table, seq) in enumerate(rows):
            column = "created_at" if table is messages else "at"
            moment = now - (len(rows) - number) * 7.3 - (40 if number < 12 else 0) + (number % 3) * 2.1
            here = sa.and_(table.c.job_id == job_id, table.c.seq == seq)
            conn.execute(sa.update(table).where(here).values({column: moment}))
            if table is messages:
                mine = sa.and_(tool_calls.c.job_id == job_id, tool_calls.c.message_seq == seq)
                conn.execute(sa.update(tool_calls).where(mine).values(started_at=moment))
        conn.execute(sa.update(runs).where(runs.c.job_id == job_id).values(lease_expires_at=now + 3600))
