"""The page of workers: who runs what, what waits, what rests; and that nobody sees others' jobs there."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import expect

from storage import registry
from tests.factories import WORKER, claim_job, expire_lease, make_job
from tests.web.conftest import Client, Site, Visitor

browsing = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)


def _register(site: Site, name: str, **changes: Any) -> None:
    told = {
        "host": "h",
        "pid": 1,
        "queues": ["agent"],
        "concurrency": 4,
        "version": "1",
        "sandbox": "bwrap",
        "tools": [],
    }
    registry.register_worker(site.db, {"name": name, **told, **changes})


def _text(html: str) -> str:
    return " ".join(html.split())


def test_runs_queues_and_cooldowns_are_told(site: Site, client: Client) -> None:
    mine = client("local")
    assert "No worker is running" in mine.get("/workers").text
    _register(site, WORKER, problems=["no key <b>"])
    _register(site, "drained:2", sandbox="landlock: no network, no hiding of /proc")
    registry.request_drain(site.db, ["drained:2"], "local")
    lost = make_job(site.db, title="lost one")
    expire_lease(site.db, claim_job(site.db, lost, worker="gone:3"))
    job = make_job(site.db, title="held one")
    claim_job(site.db, job)
    make_job(site.db, title="waits", available_at=time.time() - 90)
    make_job(site.db, title="later", available_at=time.time() + 9_000)
    registry.cool_down(site.db, "https://m.example/v1 large", 60, "429 <script>")
    html = _text(mine.get("/workers").text)
    assert f'<a href="/jobs/{job}" dir="auto">held one</a>' in html
    assert "last with gone:3" in html
    assert "lease over" in html
    assert html.count("draining") == 1
    assert "no key &lt;b&gt;" in html
    assert 'title="landlock: no network, no hiding of /proc">sandbox: landlock<' in html
    assert "429 &lt;script&gt;" in html
    queues = {queue["kind"]: queue for queue in mine.get("/api/queues").json()["items"]}
    assert (queues["agent"]["due"], queues["agent"]["later"]) == (1, 1)
    assert 89 < queues["agent"]["oldest_seconds"] < 600
    assert (queues["context"]["due"], queues["summary"]["due"]) == (0, 0)
    (resting,) = mine.get("/api/cooldowns").json()["items"]
    assert (resting["endpoint"], resting["reason"]) == ("https://m.example/v1 large", "429 <script>")


def test_others_jobs_are_counted_and_not_named(site: Site, client: Client) -> None:
    _register(site, WORKER)
    theirs, mine = make_job(site.db, title="secret plan", owner="ann"), make_job(site.db, title="my plan")
    for job in (theirs, mine):
        claim_job(site.db, job)
    for path in ("/workers", "/api/workers"):
        text = client("local").get(path).text
        assert mine in text, path
        assert theirs not in text, path
        assert "secret plan" not in text, path
    assert "and 1 jobs of others" in client("local").get("/workers").text
    (worker,) = client("local").get("/api/workers").json()["items"]
    assert (worker["busy"], [run["job_id"] for run in worker["runs"]]) == (2, [mine])
    assert theirs in client("root", "admin").get("/workers").text


@browsing
def test_the_page_follows(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/workers")
    expect(page.get_by_role("heading", name="No worker is running")).to_be_visible()
    _register(site, WORKER)
    expect(page.locator(".worker")).to_contain_text("Idle")
    job = make_job(site.db, title="new work")
    claim_job(site.db, job)
    page.locator(".worker").get_by_role("link", name="new work").click()
    page.wait_for_url(f"**/jobs/{job}*")
