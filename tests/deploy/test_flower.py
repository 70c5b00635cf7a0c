"""Flower as `sostenuto flower` starts it: whom it lets in, what it lets them do, and what they find."""

from __future__ import annotations

import re
import stat

from flower.urls import handlers
from playwright.sync_api import Browser

from jobs.flower_server import USER, password_file
from tests.crash.bench import mind
from tests.deploy.flower import PASSWORD, Flower
from tests.resilience.bench import Bench
from tests.waiting import wait_until

OPEN = {
    "/healthcheck",
    "/static/(.*)",
    "/logout",
    "/login/?",
}  # the last two: of a way to sign in that is not used


def start(bench: Bench, port: int, *arguments: str, **env: str) -> Flower:
    process = bench.commands.run("flower", "--port", str(port), *arguments, env=bench.env(**env))
    process.wait_for_log("listening on ")
    return Flower(f"http://127.0.0.1:{port}", process)


def test_strangers_see_nothing_and_nobody_changes_anything(sqlite_bench: Bench, free_port: int) -> None:
    bench = sqlite_bench
    refused = bench.commands.run("flower", "--host", "0.0.0.0", env=bench.env())  # noqa: S104 - to be refused
    flower = start(bench, free_port)
    file = password_file(bench.installation.settings)
    made = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert flower.process is not None
    assert str(file) in flower.process.log()
    routes = [getattr(route, "regex", None) or re.compile(route[0]) for route in handlers]
    paths = {route.pattern.removesuffix("$") for route in routes} - {".*"}
    assert len(paths) > 25
    for password in (None, "wrong", made + "x"):
        with flower.client(password) as stranger:
            for path in sorted(paths - OPEN):
                asked = path.replace("(.+)", "x").replace("(.*)", "x").replace("/?", "")
                answers = {stranger.get(asked).status_code, stranger.post(asked).status_code}
                assert answers <= {401, 405}, asked
                assert 401 in answers, asked
    with flower.client(made) as known:
        assert known.get("/tasks").status_code == 200
        assert known.get("/metrics").status_code == 200
        for path in ("/api/worker/shutdown/x", "/api/task/revoke/x", "/api/task/send-task/sostenuto.agent"):
            assert known.post(path, json={"args": ["x"]}).status_code == 403, path
    unwritable = bench.commands.run("flower", env=bench.env(SOSTENUTO_DATA_DIR="/proc/nowhere"))
    assert unwritable.wait() == 2
    assert "set SOSTENUTO_FLOWER_PASSWORD_FILE" in unwritable.log()
    assert refused.wait() == 2
    assert "--allow-remote" in refused.log()
    taken = bench.commands.run("flower", "--port", str(free_port), env=bench.env())
    assert taken.wait() == 2
    assert "choose another --port" in taken.log()
    flower.process.term()
    assert flower.process.wait() == 0
    assert made not in flower.process.log()
    assert not [
        file
        for file in bench.installation.settings.data_dir.rglob("flower*")
        if file.name != "flower-password"
    ]


def test_a_stranger_finds_which_worker_runs_a_job_and_its_movement(
    sqlite_bench: Bench, browser: Browser, free_port: int
) -> None:
    """From its pages alone; started before the worker, behind a prefix."""
    bench = sqlite_bench
    bench.environment["SOSTENUTO_BROKER_URL"] = (
        ""  # the embedded one; tests/deploy/test_procfile.py has a Redis
    )
    bench.endpoint.mind = mind
    flower = start(bench, free_port, "--url-prefix", "/flower/", SOSTENUTO_FLOWER_PASSWORD=PASSWORD)
    first, second = bench.endpoint.hold("*/1/*"), bench.endpoint.hold("*/2/*")
    bench.start("--name", "desk@here", "--queues", "agent")
    bench.write_pieces()
    job_id = bench.cli("submit", "--piece", "crash", "--file", __file__, "A secret errand.").strip()
    first.wait_held()
    context = browser.new_context(http_credentials={"username": USER, "password": PASSWORD})
    foreign: list[str] = []
    context.on(
        "request", lambda asked: None if asked.url.startswith(flower.url) else foreign.append(asked.url)
    )
    page = context.new_page()

    def row() -> str:
        page.goto(f"{flower.url}/flower/")
        page.get_by_role("link", name="Tasks").click()
        found = page.locator("#tasks-table tbody tr", has_text=job_id).first
        found.wait_for()
        return found.inner_text()

    def shows(*wanted: str) -> None:
        wait_until(lambda: all(text in row() for text in wanted), 60, f"a row with {wanted}")

    shows("sostenuto.agent", "RUNNING", "desk@here", "'movement': 'work'", "'piece': 'crash'")
    first.release()
    second.wait_held()
    shows("RUNNING", "desk@here", "'movement': 'finish'")
    page.get_by_role("link", name="desk@here").first.click()
    page.get_by_role("tab", name="Queues").click()
    assert "agent" in page.locator("#tab-queues").inner_text()
    page.get_by_role("link", name="Broker").click()
    assert "agent" in page.locator("table").inner_text()
    second.release()
    assert bench.wait_ended(job_id).state == "succeeded"
    shows("SUCCESS", "'left': 'succeeded")
    page.locator("#tasks-table a[href*='/task/']").first.click()
    assert "errand" not in page.content()
    context.close()
    assert foreign == []
