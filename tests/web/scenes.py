"""A lively installation for the pictures in the documents: jobs in every state, with pasts such as real ones have."""

from __future__ import annotations

import io
import random
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from PIL import Image, ImageDraw

from jobs.installation import Installation
from jobs.states import State
from jobs.workspace import workspace_path
from storage import registry
from storage.models import runs
from tests import factories
from tests.factories import WORKER, set_columns
from tests.web.rows import Past
from tests.web.tab_rows import rich_job

REPORT = """\
Monday was the busiest day. In all three weeks the lunch hours carry **most of the sales**:

| week | sales | of it at lunch |
|---|---:|---:|
| 45 | 1,204 € | 61% |
| 46 | 1,398 € | 58% |
| 47 | 1,551 € | 63% |

The chart and the sums are in [the report](output/report.md).
"""
CODE = """\
I read the tables with a few lines of Python:

```python
import csv

def total(path: str) -> float:
    with open(path, newline="") as file:
        return sum(float(row["amount"]) for row in csv.DictReader(file))
```
"""
TITLES = (
    "Translate the menu into Japanese and check the prices", "Compare the three offers for the roof",
    "Find out why the nightly import is slow", "Write the minutes of the meeting of 12 November",
    "Sort the photographs of the harbour by year", "Check the invoices of October against the bank's list",
    "Summarise the letters that came this week", "Draft the answer to the landlord", "Collect the opening hours of all branches",
    "Make a chart of the visitors by hour", "Proofread the chapter on tides", "List the licences of everything we ship",
    "Rename the scanned files by their date", "Explain the new tax form in simple words", "Merge the two address lists",
    "Look for broken links on our pages", "Plan the stands for the market in June", "Turn the interview into an article",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """The jobs that have a view of their own."""

    done: str
    asking: str
    running: str
    rich: str  # something in every tab, and a reply on its way


def build_scene(where: Installation) -> Scene:
    """Writes it all. The newest jobs are those that are looked at."""
    chance = random.Random(7)
    _workers(where)
    for number, title in enumerate(reversed(TITLES)):
        _older(where, title, chance, age=86_400 - 4_200 * number)
    failed = Past(where, "Fetch the price list from the supplier's page", piece="general")
    failed.begin()
    failed.say("I ask the page.", ("Bash", {"command": "curl https://supplier.example/prices.csv"}))
    failed.end("failed", "fail", "model_refused", {"detail": "the endpoint answered 401"})
    done = _done(where)
    running = _running(where)
    asking = _asking(where)
    registry.cool_down(where.db, "https://models.example/v1 large-1", 95, "429: too many tokens a minute")
    return Scene(done, asking, running, rich_job(where, _chart()))


def _chart() -> bytes:
    """A picture that the agent looked at."""
    image = Image.new("RGB", (640, 300), "white")
    pen = ImageDraw.Draw(image)
    for number, height in enumerate((52, 56, 124, 134, 140, 168, 156, 155, 225, 235, 96, 58)):
        pen.rectangle([30 + number * 49, 280 - height, 62 + number * 49, 280], fill="#2f5d62")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _workers(where: Installation) -> None:
    for name, queues, slots in ((WORKER, ["agent"], 50), ("desk-2:4712", ["context"], 8)):
        offered: dict[str, Any] = {
            "version": "0.1.0",
            "sandbox": "bwrap: own namespaces, no network, no capabilities, system call filter",
            "tools": [],
            "pid": 4711,
            "host": "desk-2",
        }
        registry.register_worker(where.db, {"name": name, "queues": queues, "concurrency": slots, **offered})


def _older(where: Installation, title: str, chance: random.Random, age: float) -> None:
    states = [State.SUCCEEDED] * 10 + [State.CANCELLED, State.QUEUED, State.PAUSED, State.ABORTED]
    state = chance.choice(states)
    created = time.time() - age
    lasted = chance.uniform(40, 1_900)
    ended = state in (State.SUCCEEDED, State.CANCELLED, State.ABORTED)
    spent: dict[str, Any] = {
        "steps": chance.randrange(4, 60), "prompt_tokens": chance.randrange(9_000, 400_000), "completion_tokens": 4_000,
        "cost": chance.uniform(0.01, 1.9), "context_tokens": chance.randrange(3_000, 60_000),
    }  # fmt: skip
    spent |= {"started_at": created + 2}
    stamp = f"{int(created * 1000):012x}"  # ids are ordered by time
    factories.make_job(
        where.db, state, id=f"{stamp[:8]}-{stamp[8:]}-7000-8000-000000000000", title=title,
        piece=chance.choice(["general", "research-report", "ask-first"]), created_at=created, updated_at=created,
        available_at=created, completed_at=created + lasted if ended else None, **({} if state is State.QUEUED else spent),
    )  # fmt: skip


def _files(where: Installation, job_id: str, **files: str) -> None:
    root = workspace_path(where.settings.data_dir, job_id)
    for name, text in files.items():
        folder, _, rest = name.partition("__")
        (root / folder / rest.replace("_", ".")).write_text(text)


def _done(where: Installation) -> str:
    past = Past(
        where, "Sum up the sales of three weeks, by day and hour, and say what stands out.", piece="general"
    )
    _files(
        where,
        past.id,
        input__sales_csv="day,hour,amount\nMon,12,18.20\n",
        input__notes_txt="closed on Sundays\n",
    )
    past.begin("work", "You are careful with numbers.")
    todos = [("t1", "Read the tables", "completed"), ("t2", "Sum by day and hour", "completed"), ("t3", "Write the report", "completed")]  # fmt: skip
    listed = {"todos": [{"id": i, "content": text, "status": status} for i, text, status in todos]}
    first, second = past.say(CODE, ("Read", {"path": "input/sales.csv"}), ("todo_write", listed))
    past.answer(first, "day,hour,amount\nMon,12,18.20\nMon,13,22.10\n…", "Read")
    past.answer(second, "3 todos, none open", "todo_write")
    (third,) = past.say("Now the sums.", ("Bash", {"command": "python sums.py input/sales.csv"}))
    past.answer(third, "week 45: 1204.00\nweek 46: 1398.00\nweek 47: 1551.00\n")
    (fourth,) = past.say(None, ("Write", {"path": "output/report.md", "content": REPORT}))
    past.answer(fourth, "written: 412 bytes", "Write")
    _files(where, past.id, output__report_md=REPORT)
    past.succeed(REPORT)
    set_columns(where.db, past.id, context_tokens=9_800, prompt_tokens=48_200, started_at=time.time() - 190)
    return past.id


def _running(where: Installation) -> str:
    past = Past(
        where, "Go through the 40 answers of the survey and group what people wish for.", piece="general"
    )
    _files(where, past.id, input__answers_csv="id,text\n1,more light\n2,a bench\n")
    past.begin("work", "You read closely.")
    (first,) = past.say(
        "I begin with the first ten answers.", ("Read", {"path": "input/answers.csv", "limit": 10})
    )
    past.answer(first, "1,more light\n2,a bench\n3,longer hours\n…", "Read")
    past.say("Light is named often. I count it.", ("Grep", {"pattern": "light", "path": "input"}))
    set_columns(
        where.db, past.id, max_steps=40, max_cost=2.0, context_tokens=21_400, prompt_tokens=61_000,
        started_at=time.time() - 74,
    )  # fmt: skip
    with where.db.write() as conn:  # as its worker's heartbeat would
        conn.execute(
            sa.update(runs).where(runs.c.id == past.run.run_id).values(lease_expires_at=time.time() + 3_600)
        )
    return past.id


def _asking(where: Installation) -> str:
    past = Past(where, "Order the new chairs for the reading room.", piece="ask-first")
    past.begin("work", "You ask before you spend.")
    (first,) = past.say("I compare the two shops.", ("Read", {"path": "input/offers.txt"}))
    past.answer(first, "oak: 118 € each, 3 weeks\nbeech: 84 € each, at once\n", "Read")
    past.ask("Oak takes three weeks and costs 34 € more a chair. Which ones shall it be?", ["Oak", "Beech"])
    set_columns(where.db, past.id, context_tokens=4_100, prompt_tokens=7_900, started_at=time.time() - 31)
    return past.id
