"""Giving a task: once and only once, with files, with errors where they belong, and nothing typed lost."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import FilePayload, Page, Route, expect

from jobs.views import JobView, list_jobs
from jobs.workspace import list_workspace, workspace_path
from tests.factories import make_job
from tests.waiting import wait_until
from tests.web.conftest import Client, Site, Visitor

browsing = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)


def _all(site: Site) -> list[JobView]:
    return list_jobs(site.installation, None)


def _files(site: Site, job: JobView) -> list[str]:
    root = workspace_path(site.installation.settings.data_dir, job.id)
    return [entry.path for entry in list_workspace(root).entries]


def _send(client: httpx2.Client, *files: tuple[str, bytes], **fields: str) -> httpx2.Response:
    parts = [("files", (name, data)) for name, data in files] or [("files", ("", b""))]
    return client.post("/new", data={"instruction": "Do it.", **fields}, files=parts)


def test_everything_that_is_filled_in_arrives(site: Site, client: Client) -> None:
    answer = _send(
        client("local"), ("a.txt", b"1"), ("b/c.txt", b"2"),
        instruction="Line one\r\nline two", piece="ask-first", model="m-1", priority="7", max_steps="9", max_cost="1.5",
        task_type="issue", task_identifier="42", repository="demo", user="ann", available_at="2099-01-02T03:04:00Z",
    )  # fmt: skip
    (job,) = _all(site)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, f"/jobs/{job.id}")
    assert (job.title, job.piece, job.model, job.priority, job.owner) == (
        "Line one",
        "ask-first",
        "m-1",
        7,
        "local",
    )
    assert (job.budget["max_steps"], job.budget["max_cost"]) == (9, 1.5)
    assert (job.task_type, job.task_identifier, job.repository, job.user) == ("issue", "42", "demo", "ann")
    assert job.available_at == datetime(2099, 1, 2, 3, 4, tzinfo=UTC).timestamp()
    assert _files(site, job) == ["input/a.txt", "input/b/c.txt"]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("instruction", "  ", "the instruction is empty"),
        ("piece", "no-such", "there is no piece"),
        ("priority", "5000", "1000 or less"),
        ("priority", "high", "a number is needed"),
        ("max_steps", "-1", "more than 0"),
        ("max_cost", "nan", "needed"),
        ("inherits_from", "none", "no ended job"),
        ("available_at", "soon", "not a time"),
        ("repository", "x" * 501, "at most 500 characters"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_makes_nothing(
    site: Site, client: Client, field: str, value: str, told: str
) -> None:
    answer = _send(client("local"), ("a.txt", b"1"), **{field: value})
    assert answer.status_code == 422
    found = re.search(rf'id="error-{field}"[^>]*>([^<]*)<', answer.text)
    assert found
    assert told in found[1]
    assert _all(site) == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("instruction", " ", "指示が空か"),
        ("piece", "no-such", "このピースは使えません"),
        ("priority", "5000", "1000 以下"),
        ("priority", "high", "数値を"),
        ("max_steps", "-1", "0 より大きい"),
        ("available_at", "soon", "時刻として"),
        ("repository", "x" * 501, "500 文字以内"),
        ("inherits_from", "none", "この ID のものはありません"),
    ],
)
def test_what_is_wrong_is_told_in_japanese_on_the_japanese_page(
    site: Site, client: Client, field: str, value: str, told: str
) -> None:
    japanese = client("local")
    japanese.headers["Accept-Language"] = "ja"
    answer = _send(japanese, **{field: value})
    assert answer.status_code == 422
    found = re.search(rf'id="error-{field}"[^>]*>([^<]*)<', answer.text)
    assert found
    assert told in found[1]


def test_a_follow_up_begins_with_its_predecessor_filled_in(site: Site, client: Client) -> None:
    asker = client("local")
    ended, going_on = make_job(site.db, "failed"), make_job(site.db)
    assert f'href="/new?inherits_from={ended}"' in asker.get(f"/jobs/{ended}").text
    assert "/new?inherits_from=" not in asker.get(f"/jobs/{going_on}").text
    form = asker.get("/new", params={"inherits_from": ended}).text
    assert re.search(rf'name="inherits_from"[^>]*value="{ended}"', form)
    assert "&lt;b&gt;" in asker.get("/new", params={"inherits_from": '"><b>'}).text
    assert _send(asker, inherits_from=ended).status_code == 204
    assert [job.inherits_from for job in _all(site) if job.inherits_from] == [ended]


def test_a_file_that_may_not_be_is_told_at_the_files(site: Site, client: Client) -> None:
    for name in ("../x", "/etc/passwd", " x", ".."):
        answer = _send(client("local"), (name, b"1"))
        assert (answer.status_code, 'id="error-files"' in answer.text) == (422, True), name
    assert _all(site) == []
    assert _send(client("local", "jobs:read", "jobs:write"), ("a.txt", b"1")).status_code == 422
    assert client("local").post("/new", json={"instruction": "x"}).status_code == 415


def test_the_same_key_is_the_same_job(site: Site, client: Client) -> None:
    mine = client("local")
    one, two = (_send(mine, idempotency_key="k") for _ in range(2))
    assert one.headers["hx-redirect"] == two.headers["hx-redirect"]
    assert len(_all(site)) == 1


def _fill(page: Page, text: str) -> None:
    page.get_by_label("What is to be done?").fill(text)


@browsing
def test_a_double_click_makes_one_job(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/new")
    _fill(page, "Once.")
    page.get_by_role("button", name="Start").dblclick()
    page.wait_for_url("**/jobs/*")
    assert len(_all(site)) == 1


@browsing
def test_a_reload_while_it_is_sent_and_sending_again_makes_one_job(site: Site, visitor: Visitor) -> None:
    """The answer never arrives; the person reloads, finds the text still there, and sends it once more."""
    visitor.expected = ("net::ERR_", "htmx:", "Failed to load")
    page = visitor.open("/new")

    def lose_the_answer(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        route.fetch()
        route.abort()

    page.route("**/new", lose_the_answer)
    _fill(page, "Only once.")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#toast")).to_contain_text("does not answer")
    wait_until(lambda: len(_all(site)) == 1)
    page.unroute_all()
    page.reload()
    expect(page.get_by_label("What is to be done?")).to_have_value("Only once.")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    assert len(_all(site)) == 1
    # The next task is another one, even with the same words.
    page.goto(f"{site.url}/new")
    expect(page.get_by_label("What is to be done?")).to_have_value("")
    _fill(page, "Only once.")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    assert len(_all(site)) == 2


@browsing
def test_files_are_dropped_chosen_and_taken_out(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/new")
    transfer = page.evaluate_handle(
        "() => { const t = new DataTransfer(); t.items.add(new File(['dropped'], '日本.txt')); return t; }"
    )
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": transfer})
    chosen = [
        FilePayload(name=name, mimeType="text/plain", buffer=name.encode()) for name in ("a.txt", "b.txt")
    ]
    page.locator("input[type=file]").set_input_files(chosen)
    expect(page.locator("[data-picked] li")).to_have_count(3)
    page.get_by_role("button", name="Remove a.txt").click()
    expect(page.locator("[data-picked] li")).to_have_count(2)
    _fill(page, "With files.")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    (job,) = _all(site)
    assert _files(site, job) == ["input/b.txt", "input/日本.txt"]


@browsing
def test_errors_leave_everything_as_it_was_typed(site: Site, visitor: Visitor, tmp_path: Path) -> None:
    visitor.expected = ("Failed to load resource", "Response Status Error Code 422", "htmx:")
    (tmp_path / "a.txt").write_text("1")
    page = visitor.open("/new")
    _fill(page, "Typed at length.")
    page.locator("input[type=file]").set_input_files([tmp_path / "a.txt"])
    page.get_by_text("More options").click()
    page.get_by_label("Repository").fill("x" * 400)
    page.locator("#f-repository").evaluate(
        "field => { field.maxLength = 600; field.value = 'x'.repeat(501); }"
    )
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#error-repository")).to_contain_text("at most 500 characters")
    expect(page.locator("#f-repository")).to_be_focused()
    expect(page.get_by_label("What is to be done?")).to_have_value("Typed at length.")
    expect(page.locator("[data-picked] li")).to_have_count(1)
    page.get_by_label("Repository").fill("demo")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    (job,) = _all(site)
    assert (job.repository, _files(site, job)) == ("demo", ["input/a.txt"])


@browsing
def test_a_draft_survives_and_goes_when_it_is_thrown_away_or_its_writer_leaves(
    site: Site, visitor: Visitor
) -> None:
    page = visitor.open("/new")
    _fill(page, "Half a thought")
    page.get_by_label("research-report").check()
    expect(page.locator("[data-graph] svg")).to_be_visible()
    page.close()
    page = visitor.open("/new")  # another tab, later
    expect(page.get_by_label("What is to be done?")).to_have_value("Half a thought")
    expect(page.get_by_label("research-report")).to_be_checked()
    expect(page.locator("[data-graph] svg")).to_be_visible()
    ended = make_job(site.db, "failed")
    page.goto(f"{site.url}/new?inherits_from={ended}")
    expect(page.locator("#f-inherits_from")).to_have_value(ended)
    page.get_by_role("button", name="Discard it").click()
    expect(page.get_by_label("What is to be done?")).to_have_value("")
    _fill(page, "Nobody else's business")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    assert page.evaluate("Object.keys(localStorage)") == []
