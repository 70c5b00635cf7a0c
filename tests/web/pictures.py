"""Makes the pictures of the documentation: `.venv/bin/python -m tests.web.pictures [FOLDER]`, by default docs/images."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page

from jobs import comments, lifecycle
from jobs.api.sessions import create_login_code
from jobs.installation import Installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.workspace import InputFile, workspace_path
from storage.engine import Database
from storage.migrate import upgrade
from storage.records import Commit, NewMessage
from tests.api.conftest import serving
from tests.factories import job_now, set_columns
from tests.web.rows import Past

IMAGES = Path(__file__).parents[2] / "docs" / "images"
RAIN = b"place,Jan,Feb,Mar\ntokyo,52.3,56.1,123.8\nheathrow,55.2,40.9,46.5\n"
REPORT = "# Rain in two cities\n\nTokyo gets **1598.2 mm** in a year, London Heathrow 615.1 mm.\n"


def some_jobs(where: Installation) -> dict[str, str]:
    """A morning's work; gives the ids by what became of them."""
    made: dict[str, str] = {}
    now = where.db.clock()

    def aged(name: str, job_id: str, minutes: float) -> None:
        made[name] = job_id
        ended = (
            {} if job_now(where.db, job_id)["completed_at"] is None else {"completed_at": now - minutes * 40}
        )
        set_columns(where.db, job_id, created_at=now - minutes * 60, **ended)

    cancelled = submit(
        where, SubmitRequest("Try the new summary prompt on last week's tickets"), "local"
    ).job.id
    lifecycle.cancel(where, cancelled, None, "local")
    aged("cancelled", cancelled, 190)
    aged("failed", _failed(where), 140)
    aged("done", _done(where), 75)
    aged("paused", _paused(where), 50)
    aged("asking", _asking(where), 22)
    aged("running", _running(where), 4)
    later = SubmitRequest("Check the links of the handbook", available_at=now + 8 * 3600)
    aged("scheduled", submit(where, later, "local").job.id, 1)
    return made


def _failed(where: Installation) -> str:
    past = Past(
        where,
        "Migrate the build of the parser to the new toolchain",
        piece="code-change",
        repository="parser",
    )
    past.begin("implement")
    (call_id,) = past.say("I try the new toolchain first.", ("Bash", {"command": "make build"}))
    past.answer(call_id, "error: unknown target wasm32\n", is_error=True)
    told = "the same call with the same result, 10 times"
    past.end(
        "failed", "fail", "loop", {"detail": told}, error_message=f"its agent went round in circles: {told}"
    )
    return past.id


def _done(where: Installation) -> str:
    task = "Compare the rain of Tokyo and London Heathrow over the year, month by month.\n\nThe figures are in `input/rain.csv`, in millimetres. I want a short report with a table."
    past = Past(where, task, files=[InputFile("rain.csv", RAIN)])
    past.begin()
    todos = [
        ("Read the figures", "completed"),
        ("Compute the totals", "completed"),
        ("Write the report", "completed"),
    ]
    listed = [{"id": str(n), "content": text, "status": status} for n, (text, status) in enumerate(todos, 1)]
    read, noted = past.say(
        "I read the figures first.", ("Read", {"path": "input/rain.csv"}), ("todo_write", {"todos": listed})
    )
    past.answer(read, RAIN.decode(), "Read")
    past.answer(noted, "ok", "todo_write")
    comments.add_comment(where, past.id, None, "Please give the totals in **inches** too.", "local")
    past.write(NewMessage("user", "gap", "New comments: …"), what=Commit.GAP, inbox_seen=1)
    (ran,) = past.say(None, ("Bash", {"command": "awk -F, -f output/figures.awk input/rain.csv"}))
    past.answer(ran, "tokyo 1598.2\nheathrow 615.1\n")
    table = "| | mm | inches |\n|---|---:|---:|\n| Tokyo | 1598.2 | 62.9 |\n| Heathrow | 615.1 | 24.2 |\n"
    (wrote,) = past.say(
        f"The totals, in both units:\n\n{table}", ("Write", {"path": "output/report.md", "content": REPORT})
    )
    past.answer(wrote, "written", "Write")
    (workspace_path(where.settings.data_dir, past.id) / "output" / "report.md").write_text(REPORT)
    past.succeed(
        "Over the year **Tokyo gets 1598.2 mm** of rain, London Heathrow 615.1 mm. October differs most: 234.8 mm "
        "against 66.6 mm.\n\nThe report with all months is [output/report.md](output/report.md)."
    )
    return past.id


def _paused(where: Installation) -> str:
    past = Past(where, "Translate the handbook into Japanese, chapter by chapter")
    past.begin()
    past.say("Chapter 3 is done.")
    past.end("paused", "exhaust_budget", "budget_exceeded", {"budget": "steps", "limit": 40}, max_steps=40)
    set_columns(where.db, past.id, steps=40, prompt_tokens=188_400, cost=1.84)
    return past.id


def _asking(where: Installation) -> str:
    past = Past(where, "四半期の売上レポートを作成し、担当者ごとに並べ替えてください", piece="ask-first")
    past.begin("ask")
    past.say("通貨が分からないので確認します。")
    past.ask("金額は円とユーロのどちらで表示しますか？ 両方も可能です。", ["円で", "ユーロで", "両方"])
    return past.id


def _running(where: Installation) -> str:
    past = Past(
        where, "Summarise the interviews by theme; quote each person at least once", piece="research-report"
    )
    past.begin("gather")
    (listed,) = past.say(
        "I look at what is there, then read one interview after the other.", ("Glob", {"pattern": "input/*"})
    )
    past.answer(listed, "input/anna.txt\ninput/ben.txt\ninput/chika.txt\n", "Glob")
    past.say("Three interviews. I begin with Anna's.", ("Read", {"path": "input/anna.txt"}))
    return past.id


def take(browser: Browser, url: str, code: str, jobs: dict[str, str], folder: Path) -> list[Path]:
    """The list and a job, light and dark."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 860}, locale="en-GB", reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"{url}/login#{code}")
    page.wait_for_url(f"{url}/")
    paths = {"list": "/", "job": f"/jobs/{jobs['done']}"}
    made = list(_pictures(page, {name: url + path for name, path in paths.items()}, folder))
    context.close()
    return made


def _pictures(page: Page, urls: dict[str, str], folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, url in urls.items():
        page.goto(url)
        if name == "job":
            page.locator("#side-todos").wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            file = folder / f"page-{name}{'-dark' if scheme == 'dark' else ''}.png"
            page.screenshot(path=file)
            yield file


def main() -> None:
    from playwright.sync_api import sync_playwright

    from tests.web.conftest import launched

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory() as data_dir, sync_playwright() as playwright:
        settings = Settings(data_dir=Path(data_dir), broker_url=f"redis+socket://{data_dir}/no-broker")
        where = Installation(settings, Database(settings.database_url))
        upgrade(where.db)
        jobs = some_jobs(where)
        for url in serving(where):
            for file in take(
                launched(playwright), url, create_login_code(where.db, "local").code, jobs, folder
            ):
                print(f"{file} ({file.stat().st_size:,} bytes)")
        where.close()


if __name__ == "__main__":
    main()
