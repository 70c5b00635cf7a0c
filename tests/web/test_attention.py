"""What waits for a person: the mark in the header, notifications, and the answer given in the list."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from jobs import comments, lifecycle
from jobs.lifecycle import Budget
from jobs.states import State
from tests.factories import job_now, make_job
from tests.waiting import wait_until
from tests.web.conftest import Client, Site, Visitor
from tests.web.rows import Past

browsing = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
# The browser's own notifications, and a list of what was told by them.
_LISTEN = """(() => {
  const told = window.told = [];
  const Own = window.Notification;
  window.Notification = class extends Own {
    constructor(title, options) { super(title, options); told.push(`${title} | ${options.body}`); }
  };
})()"""


def test_only_ones_own_jobs_count_and_only_what_is_new_is_sent(site: Site, client: Client) -> None:
    mine = client("local")
    first = mine.get("/attention").json()
    assert (first["count"], first["jobs"]) == (0, [])
    past = Past(site.installation, "Buy chairs.")
    past.ask("Oak or beech?", ["Oak", "Beech"])
    make_job(site.db, State.PAUSED)  # by its owner: counted, and no news to them
    make_job(site.db, State.WAITING_HUMAN, owner="ann")
    wait_until(
        lambda: mine.get("/attention").json()["count"] == 2, reason="counts are remembered for a moment"
    )
    news = client("local", "admin").get("/attention").json()
    assert news["count"] == 2
    assert [(job["id"], job["text"]) for job in news["jobs"]] == [(past.id, "Oak or beech?")]
    assert mine.get("/attention", params={"seen": news["mark"]}).status_code == 204
    comments.reply(site.installation, past.id, None, "Oak", "local")
    wait_until(lambda: mine.get("/attention").json()["count"] == 1)


def test_a_question_asked_again_is_news_and_hostile_text_is_neutral(site: Site, client: Client) -> None:
    past = Past(site.installation, "x\u202ey")
    past.ask("a\x1b]52;c;YQ==\x07b")
    (told,) = client("local").get("/attention").json()["jobs"]
    assert not any(character in told["title"] + told["text"] for character in "\u202e\x1b\x07")
    lifecycle.pause(site.installation, past.id, None, "local")
    lifecycle.resume(site.installation, past.id, None, "local", Budget())
    (again,) = client("local").get("/attention").json()["jobs"]
    assert again["key"] == told["key"]  # the same question still


@browsing
def test_each_question_is_told_once_and_only_when_wanted(site: Site, visitor: Visitor) -> None:
    visitor.context.grant_permissions(["notifications"], origin=site.url)
    visitor.context.add_init_script(_LISTEN)
    old = Past(site.installation, "An old one.")
    old.ask("Was this asked before?")
    page = visitor.open("/workers")
    expect(page.locator("#attention")).to_have_text("1 for you")
    assert page.evaluate("window.told") == []
    bell = page.get_by_role("button", name="Notify me when a job waits for me")
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "true")
    new = Past(site.installation, "Buy chairs.")
    new.ask("Oak or beech?")
    expect(page.locator("#attention")).to_have_text("2 for you")
    expect(page).to_have_title("(2) Workers · Sostenuto")
    wait_until(
        lambda: page.evaluate("window.told") == ["Waiting for you: Buy chairs. | Oak or beech?"],
        reason="the notification",
    )
    page.reload()
    expect(page.locator("#attention")).to_have_text("2 for you")
    assert page.evaluate("window.told") == []  # another page tells nothing again
    page.locator("#attention").click()
    page.wait_for_url("**/?state=yours*")
    expect(page.locator("tbody tr")).to_have_count(2)


@browsing
def test_a_question_is_answered_in_the_list(site: Site, visitor: Visitor) -> None:
    """What is being typed stays while the list changes around it."""
    past = Past(site.installation, "Buy chairs.")
    past.ask("Oak or beech?", ["Oak", "Beech"])
    page = visitor.open("/")
    row = page.locator(f"#row-{past.id}")
    row.get_by_text("Answer", exact=True).first.click()
    expect(row.locator(".asked")).to_have_text("Oak or beech?")
    row.get_by_label("Answer in your own words").fill("Neither: wal")
    make_job(site.db, title="another one")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(row.get_by_label("Answer in your own words")).to_have_value("Neither: wal")
    row.get_by_label("Answer in your own words").fill("Neither: walnut")
    row.get_by_role("button", name="Answer").click()
    expect(row.locator(".badge")).to_have_text("queued")
    expect(row.locator("form")).to_have_count(0)
    assert job_now(site.db, past.id)["state"] == State.QUEUED


@browsing
def test_a_page_without_its_server_says_so_and_goes_on(site: Site, visitor: Visitor) -> None:
    visitor.expected = ("net::ERR_", "Failed to load resource")
    page = visitor.open("/")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    visitor.context.set_offline(True)
    expect(page.get_by_role("alert").filter(has_text="reconnecting")).to_be_visible()
    make_job(site.db, title="made meanwhile")
    visitor.context.set_offline(False)
    expect(page.get_by_role("link", name="made meanwhile")).to_be_visible()
    expect(page.locator("#offline")).to_be_hidden()
