"""A job's page over HTTP: who may see it, long conversations, what is shown of each record, what buttons do."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from jobs import comments, lifecycle
from jobs.states import State
from jobs.views import get_job
from jobs.web.routes import router
from jobs.workspace import workspace_path
from storage.records import Commit, NewEvent, NewMessage
from tests.factories import job_now, make_job
from tests.web.conftest import Client, Site
from tests.web.rows import Past

IDS = re.compile(r'\bid="((?:m|c|e|n)-[\d-]+)"')


def _page_routes(found: Any = router) -> list[APIRoute]:
    """Every route of the page, those of included routers too."""
    routes: list[APIRoute] = []
    for route in found.routes:
        if isinstance(route, APIRoute):
            routes.append(route)
        else:
            routes += _page_routes(route.original_router)
    return routes


def _requests() -> list[tuple[str, str]]:
    found = [(method, route.path) for route in _page_routes() for method in sorted(route.methods or ())]
    assert len(found) >= 19
    return found


OF_A_JOB = [(method, path) for method, path in _requests() if "{job_id}" in path]
FORMS: dict[str, dict[str, str]] = {"comment": {"text": "x"}, "reply": {"text": "x"}}


def _filled(path: str, job_id: str) -> str:
    path = path.replace("{job_id}", job_id).replace("{seq}", "1").replace("{path:path}", "input/a.txt")
    path = path.replace("{sha}", "a" * 64)
    return path + ("?before=9-9" if path.endswith("/older") else "")


@pytest.mark.parametrize(("method", "path"), OF_A_JOB)
def test_someone_elses_job_is_not_there(site: Site, client: Client, method: str, path: str) -> None:
    """On every route, exactly as a job that does not exist; and nothing happens to it."""
    theirs = make_job(site.db, State.WAITING_HUMAN, owner="ann")
    before = job_now(site.db, theirs)
    mine = client("local")
    form = FORMS.get(path.rpartition("/")[2], {})
    answers = [mine.request(method, _filled(path, job), data=form or None) for job in (theirs, "no-such-job")]
    told = [answer.text.replace(theirs, "JOB").replace("no-such-job", "JOB") for answer in answers]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert told[0] == told[1]
    assert job_now(site.db, theirs) == before


@pytest.mark.parametrize(
    ("method", "path"), [pair for pair in _requests() if not pair[1].startswith("/assets/")]
)
def test_no_route_is_open(site: Site, client: Client, method: str, path: str) -> None:
    """Without credentials: a page is answered by the login page, everything else by a refusal."""
    answer = httpx2.request(method, site.url + _filled(path, "x"), trust_env=False)
    assert answer.status_code == 401
    assert ('name="code"' in answer.text) == (method == "GET")


@pytest.mark.parametrize(
    ("method", "path"), [pair for pair in _requests() if not pair[1].startswith("/assets/")]
)
def test_narrow_tokens_do_no_more_than_they_may(site: Site, client: Client, method: str, path: str) -> None:
    """A token for files reads no job's page; one that reads changes nothing."""
    job_id = make_job(site.db, State.WAITING_HUMAN)
    before = job_now(site.db, job_id)
    if "/preview/" not in path:
        assert client("local", "files:write").request(method, _filled(path, job_id)).status_code == 403
    if method != "GET" or path == "/new":
        assert client("local", "jobs:read").request(method, _filled(path, job_id)).status_code == 403
    assert job_now(site.db, job_id) == before


def test_an_unknown_job_is_a_page_for_people_and_a_problem_for_programs(client: Client) -> None:
    mine = client("local")
    page = mine.get("/jobs/none", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert 'href="/"' in page.text
    assert mine.get("/jobs/none").json()["code"] == "JobNotFound"
    bad = mine.get("/jobs/none/older", params={"before": "x"}, headers={"Accept": "text/html"})
    assert bad.status_code == 404


def test_every_page_has_the_strict_policy_and_is_not_kept(site: Site, client: Client) -> None:
    past = Past(site.installation)
    for path in ("/", "/new", f"/jobs/{past.id}", "/login"):
        answer = client("local").get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", answer.text)


def test_assets_are_kept_and_nothing_else_is_an_asset(site: Site) -> None:
    page = httpx2.get(f"{site.url}/login", trust_env=False).text
    for path in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page):
        answer = httpx2.get(site.url + path, trust_env=False)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"].partition(";")[0] in (
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )
    for path in (
        "../pages.py",
        "..%2fpages.py",
        "vendor/../../pages.py",
        "vendor",
        "",
        "page.py",
        "/etc/passwd",
    ):
        assert httpx2.get(f"{site.url}/assets/{path}", trust_env=False).status_code in (401, 404)


def _past_with(site: Site, steps: int) -> Past:
    past = Past(site.installation, "Count.")
    past.begin()
    for number in range(steps):
        (call_id,) = past.say(f"step {number}", ("Glob", {"pattern": str(number)}))
        past.answer(call_id, f"found {number}")
        if number % 40 == 0:
            comments.add_comment(site.installation, past.id, None, f"comment {number}", "ann")
    return past


def test_older_parts_give_every_item_once_and_in_order(site: Site, client: Client) -> None:
    """From the newest part backwards to the instruction, over page borders that lie inside of steps."""
    past = _past_with(site, 200)
    mine = client("local")
    html = mine.get(f"/jobs/{past.id}").text
    parts = [IDS.findall(html)]
    while following := re.search(r'hx-get="([^"]*/older\?before=[\d-]+)"', html):
        html = mine.get(following[1]).text
        parts.append(IDS.findall(html))
    shown = [item for part in reversed(parts) for item in part]
    assert len(parts) > 4
    # A call at a border is shown by its result too; in the browser only where it is shown already.
    assert shown[0] == "e-1"
    assert {f"m-{seq}" for seq in range(2, 401, 2)} <= set(shown)
    assert len({item for item in shown if item.startswith("c-")}) == 200
    assert len({item for item in shown if item.startswith("n-")}) == 5
    said = [int(item[2:]) for item in shown if item.startswith("m-")]
    assert said == sorted(set(said))


def test_a_border_inside_a_step_leaves_its_call_to_the_older_part(site: Site, client: Client) -> None:
    """The result alone may only change a call that is shown already: `data-update`."""
    past = _past_with(site, 60)
    mine = client("local")
    for before in range(40, 90):
        html = mine.get(f"/jobs/{past.id}/older", params={"before": f"1-{before}"}).text
        calls = re.findall(r'<div class="item call[^>]*>', html)
        seqs = [
            int(found[1])
            for tag in calls
            if (found := re.search(r'id="c-(\d+)-', tag)) and "data-update" not in tag
        ]
        assert len(seqs) == len(set(seqs))
        assert all(f'id="m-{seq}"' in html for seq in seqs)


def test_a_long_job_opens_with_its_newest_part_only(site: Site, client: Client) -> None:
    """However long: the page of 3,000 messages is as large as that of 120."""
    sizes = []
    for steps in (120, 3000):
        past = Past(site.installation, "Long.")
        past.begin()
        for start in range(0, steps, 60):
            rows = [NewMessage("assistant", "assistant", f"step {start + n:05}") for n in range(60)]
            past.write(*rows, what=Commit.REPLY)
        html = client("local").get(f"/jobs/{past.id}").text
        assert f"step {steps - 1:05}" in html
        assert "step 00000" not in html
        sizes.append(len(html))
    assert sizes[1] < sizes[0] * 1.1


def test_records_that_are_not_shown_do_not_leave_the_page_empty(site: Site, client: Client) -> None:
    past = Past(site.installation)
    past.say("Said before.")
    past.write(events=[NewEvent("note", "worker") for _ in range(200)])
    html = client("local").get(f"/jobs/{past.id}").text
    assert "Said before." in html
    assert IDS.findall(html)[0] == "e-1"
    assert "/older?" not in html


def test_buttons_fit_the_state(site: Site, client: Client) -> None:
    mine = client("local")
    expected: dict[str, set[str]] = {
        State.QUEUED: {"pause", "cancel", "comment"},
        State.RUNNING: {"pause", "cancel", "comment"},
        State.WAITING_SUBTASKS: {"pause", "cancel", "comment"},
        State.PAUSED: {"resume", "cancel", "comment"},
        State.WAITING_HUMAN: {"pause", "cancel", "reply"},
        State.SUCCEEDED: {"comment"},
        State.FAILED: {"retry", "comment"},
        State.ABORTED: {"retry", "comment"},
        State.CANCELLED: {"retry", "comment"},
    }
    for state, actions in expected.items():
        job_id = make_job(site.db, state)
        html = mine.get(f"/jobs/{job_id}").text
        assert set(re.findall(rf'hx-post="/jobs/{job_id}/(\w+)"', html)) == actions, state


def test_a_running_job_that_is_to_be_paused_says_so_and_can_take_it_back(site: Site, client: Client) -> None:
    past = Past(site.installation)
    mine = client("local")
    html = mine.post(f"/jobs/{past.id}/pause").text
    assert "pausing after this step" in html
    assert f'hx-post="/jobs/{past.id}/resume"' in html
    mine.post(f"/jobs/{past.id}/resume")
    assert job_now(site.db, past.id)["pause_requested"] is False


def test_a_used_up_budget_is_raised_where_it_is_told(site: Site, client: Client) -> None:
    past = Past(site.installation)
    past.end("paused", "exhaust_budget", "budget_exceeded", {"budget": "steps", "limit": 40}, max_steps=40)
    mine = client("local")
    html = mine.get(f"/jobs/{past.id}").text
    assert "its step budget of 40 is used up" in html
    assert 'value="80"' in html
    refused = mine.post(f"/jobs/{past.id}/resume", data={"limit": "max_steps", "amount": "-3"})
    assert refused.status_code == 422
    assert mine.post(f"/jobs/{past.id}/resume", data={"limit": "owner", "amount": "3"}).status_code == 422
    assert get_job(site.installation, past.id, None).state == State.PAUSED
    assert (
        mine.post(f"/jobs/{past.id}/resume", data={"limit": "max_steps", "amount": "90"}).status_code == 200
    )
    job = get_job(site.installation, past.id, None)
    assert (job.state, job.budget["max_steps"]) == (State.QUEUED, 90)


def test_a_reply_where_nothing_is_asked_is_refused_and_kept_by_nobody(site: Site, client: Client) -> None:
    past = Past(site.installation)
    answer = client("local").post(f"/jobs/{past.id}/reply", data={"text": "yes"})
    assert (answer.status_code, answer.json()["code"]) == (409, "IllegalTransition")
    assert client("local").post(f"/jobs/{past.id}/comment", data={"text": "  "}).status_code == 422
    assert job_now(site.db, past.id)["inbox_total"] == 0


def test_a_scripted_model_needs_an_administrator(site: Site, client: Client) -> None:
    job_id = make_job(site.db, State.FAILED)
    form = {"model": "scripted:/etc/passwd"}
    assert client("local").post(f"/jobs/{job_id}/retry", data=form).status_code == 403
    assert client("local", "admin").post(f"/jobs/{job_id}/retry", data=form).status_code == 200


def test_the_whole_of_a_cut_text_is_a_link_away_and_plain(site: Site, client: Client) -> None:
    past = Past(site.installation, "<b>do</b> " * 20_000)
    past.begin()
    past.say("<i>long</i> " * 10_000)
    mine = client("local")
    html = mine.get(f"/jobs/{past.id}").text
    assert len(html) < 400_000
    for path in (f"/jobs/{past.id}/instruction", f"/jobs/{past.id}/messages/2"):
        assert f'href="{path}"' in html
        answer = mine.get(path)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert len(answer.text) >= 120_000
    assert mine.get(f"/jobs/{past.id}/messages/77").status_code == 404


def test_previews_stay_in_the_workspace(site: Site, client: Client) -> None:
    past = Past(site.installation)
    root = workspace_path(site.installation.settings.data_dir, past.id)
    (root / "output" / "a.md").write_text("# Head\n\n" + "x" * 300_000)
    (root / "output" / "b.txt").write_bytes(b"\xff\xfe\x00<script>")
    (root / "output" / "link.txt").symlink_to("/etc/passwd")
    mine = client("local")
    assert "Only the beginning is shown." in mine.get(f"/jobs/{past.id}/preview/output/a.md").text
    assert "&lt;script&gt;" in mine.get(f"/jobs/{past.id}/preview/output/b.txt").text
    for path in ("output/link.txt", "output/none.txt", "..%2f..%2fsostenuto.db", "%2fetc%2fpasswd", "output"):
        assert mine.get(f"/jobs/{past.id}/preview/{path}").status_code in (404, 409, 422), path


def test_pictures_are_shown_as_pictures_and_nothing_else(site: Site, client: Client) -> None:
    """A file is what its first bytes say; what is no picture, or leads elsewhere, is not shown whatever its name."""
    past = Past(site.installation)
    output = workspace_path(site.installation.settings.data_dir, past.id) / "output"
    beginnings = {
        "image/png": b"\x89PNG\r\n\x1a\n",
        "image/jpeg": b"\xff\xd8\xff\xe0",
        "image/gif": b"GIF89a",
        "image/webp": b"RIFF\x00\x00\x00\x00WEBP",
    }
    mine = client("local")
    for kind, beginning in beginnings.items():
        (output / "a b.png").write_bytes(beginning + b"<script>alert(1)</script>")
        answer = mine.get(f"/jobs/{past.id}/picture/output/a%20b.png")
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "/picture/output/a%20b.png" in mine.get(f"/jobs/{past.id}/preview/output/a%20b.png").text
    assert "/preview/output/a%20b.png" in mine.get(f"/jobs/{past.id}/side").text
    (output / "b.png").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    (output / "c.png").symlink_to("/etc/passwd")
    for path, status in (("b.png", 415), ("c.png", 422), ("none.png", 404)):
        assert mine.get(f"/jobs/{past.id}/picture/output/{path}").status_code == status, path
    assert client("ann").get(f"/jobs/{past.id}/picture/output/a%20b.png").status_code == 404


def test_what_becomes_of_a_comment_is_told_as_it_is(site: Site, client: Client) -> None:
    """Nobody reads one to a job that has succeeded: it cannot be retried."""
    told = {
        State.SUCCEEDED: "read by no agent",
        State.FAILED: "read after a retry",
        State.QUEUED: "at its next step",
    }
    for state, words in told.items():
        html = client("local").get(f"/jobs/{make_job(site.db, state)}").text
        assert [found for found in told.values() if found in html] == [words], state


def test_parents_and_children_lead_to_each_other(site: Site, client: Client) -> None:
    parent = make_job(site.db, State.WAITING_SUBTASKS, children_open=1, children_total=1)
    child = make_job(site.db, State.QUEUED, parent_id=parent, title="a part")
    mine = client("local")
    assert f'href="/jobs/{parent}"' in mine.get(f"/jobs/{child}").text
    side = mine.get(f"/jobs/{parent}/side").text
    assert f'href="/jobs/{child}"' in side
    assert "a part" in side


def test_japanese_reasons_and_next_steps(site: Site, client: Client) -> None:
    past = Past(site.installation)
    past.end(
        "paused", "exhaust_budget", "budget_exceeded", {"budget": "time", "limit": 3600.0}, max_seconds=3600
    )
    other = make_job(site.db)
    lifecycle.pause(site.installation, other, None, "花子")
    mine = client("local")
    told = {"Accept-Language": "ja"}
    html = mine.get(f"/jobs/{past.id}", headers=told)
    assert html.headers["content-language"] == "ja"
    assert "時間の上限 1h を使い切りました" in html.text
    assert '<html lang="ja">' in html.text
    assert "花子 が一時停止しました" in mine.get(f"/jobs/{other}", headers=told).text
    chosen = mine.get("/?lang=ja")
    assert "一時停止" in chosen.text
    assert "一時停止" in mine.get("/").text  # remembered by the cookie
    assert "paused" in mine.get("/?lang=en").text
