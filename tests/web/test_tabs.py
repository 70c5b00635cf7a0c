"""The tabs of a job's page in a real browser: live replies, summaries, changes, context, the waterfall; keyboard, phone."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from storage import live
from storage.records import Commit, NewMessage
from storage.runs import read_wishes
from tests.factories import expire_lease
from tests.strict_endpoint import Call, Reply
from tests.waiting import wait_until
from tests.web.conftest import PHONE, Site, Stack, Visitor, play
from tests.web.rows import Past
from tests.web.tab_rows import rich_job
from tests.web.test_for_everyone import faults_of

pytestmark = pytest.mark.timeout(300)
on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
expect.set_options(timeout=30_000)
READY = {
    "Conversation": "#side-files",
    "Progress": ".waterfall",
    "Files": ".tree .file",
    "Context": "ul.shares",
    "History": ".history li",
}


def _picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 36), "teal").save(file, "PNG")
    return file.getvalue()


def test_a_reply_is_seen_while_it_is_written(stack: Stack, guest: Visitor) -> None:
    """By a real worker: it appears, is there after a reload, and is gone with its commit."""
    stack.endpoint.mind = play(
        Reply("I **begin** to look at the files.", (Call("Glob", {"pattern": "*"}),), chunks=12),
        Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "Ready."}),)),
    )
    gate = stack.endpoint.hold(after_chunks=9)
    page = guest.open("/new")
    page.get_by_label("What is to be done?").fill("Look.")
    page.get_by_label("desk").check()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    gate.wait_held()
    written = page.locator(".written")
    expect(written.locator("strong")).to_have_text("begin")
    expect(written).to_contain_text("writes")
    expect(page.locator("#conversation .agent")).to_have_count(0)
    page.reload()
    expect(written.locator("strong")).to_have_text("begin")
    gate.release()
    expect(page.locator("#conversation .agent").first).to_contain_text("look at the files.")
    expect(page.locator(".ending.done")).to_contain_text("Ready.")
    expect(written).to_have_count(0)
    stack.endpoint.assert_clean()


@on_sqlite
def test_what_a_dead_worker_wrote_is_not_shown(site: Site, visitor: Visitor) -> None:
    """Neither after a reload nor where it was seen: from the end of its lease on there is no such reply."""
    past = Past(site.installation)
    past.begin()
    page = visitor.open(f"/jobs/{past.id}")
    wait_until(
        lambda: read_wishes(site.db, [past.run.run_id])[past.run.run_id].watched,
        reason="the worker hears of it",
    )
    live.tell_live_if_run_owns(site.db, past.run, past.next_seq(), {"text": "Half a", "characters": 6})
    expect(page.locator(".written")).to_contain_text("Half a")
    expire_lease(site.db, past.run)
    expect(page.locator(".written")).to_have_count(0)
    page.reload()
    expect(page.locator("#conversation .item").first).to_be_visible()
    expect(page.locator(".written")).to_have_count(0)


@on_sqlite
def test_a_reply_that_is_committed_while_the_page_comes_is_gone(site: Site, visitor: Visitor) -> None:
    """The page was made with it, and begins to follow the job when it is over."""
    past = Past(site.installation)
    past.begin()
    live.tell_live_if_run_owns(site.db, past.run, past.next_seq(), {"text": "Half a", "characters": 6})
    page = visitor.open("/")
    held: list[Route] = []
    page.route("**/live?*", lambda route: held.append(route))  # noqa: PLW0108 - a builtin cannot be a handler here
    page.goto(f"{site.url}/jobs/{past.id}")
    expect(page.locator(".written")).to_contain_text("Half a")
    past.say("Half a loaf.")
    (follow,) = held
    follow.continue_()
    expect(page.locator("#conversation .agent")).to_contain_text("Half a loaf.")
    expect(page.locator(".written")).to_have_count(0)


@on_sqlite
def test_a_comment_tells_when_it_was_delivered(site: Site, visitor: Visitor) -> None:
    past = Past(site.installation)
    past.begin()
    page = visitor.open(f"/jobs/{past.id}")
    page.get_by_label("Comment", exact=True).fill("Mind the gap.")
    page.get_by_role("button", name="Send").click()
    comment = page.locator(".item.person", has_text="Mind the gap.")
    expect(comment).to_contain_text("not delivered yet")
    past.say("One.")
    past.write(NewMessage("user", "gap", "New comments: …"), what=Commit.GAP, inbox_seen=1)
    expect(comment).to_contain_text("delivered at step 2")
    expect(comment).to_have_count(1)


def _unfold(page: Page) -> None:
    page.locator(".mark", has_text="Older conversation summarised").locator("summary").first.click()
    page.get_by_text("Show what it replaced").click()


@on_sqlite
def test_every_tab_shows_its_part_of_a_rich_job(site: Site, visitor: Visitor) -> None:
    job_id = rich_job(site.installation, _picture())
    page = visitor.open(f"/jobs/{job_id}")
    expect(page.locator("#head .holder")).to_contain_text("host:1")
    expect(page.locator("#head .meter")).to_contain_text("71%")
    expect(page.locator("#head .facts")).to_contain_text("of 40")
    expect(page.locator("#conversation pre .k-k").first).to_have_text("def")
    expect(page.locator(".written pre .k-k").first).to_have_text("return")
    expect(page.locator(".person", has_text="type hints")).to_contain_text("delivered at step")
    _unfold(page)
    expect(page.locator(".replaced .agent").first).to_contain_text("I look at part 1")
    page.locator(".seen img").scroll_into_view_if_needed()  # it is loaded when it comes into view
    assert page.evaluate(
        "document.querySelector('.seen img').decode().then(() => document.querySelector('.seen img').naturalWidth)"
    ) == 64  # fmt: skip

    page.get_by_role("link", name="Progress", exact=True).click()
    expect(page.locator(".waterfall .bar.w-model").first).to_be_visible()
    expect(page.locator(".waterfall .bar.failed")).to_contain_text("Bash")
    expect(page.locator(".graph .movement.current text").first).to_have_text("edit")
    expect(page.locator("#family")).to_contain_text("Check the figures of Tokyo")
    expect(page.locator("#tab")).to_contain_text("Empty fields are the only fault.")

    page.get_by_role("link", name="Files", exact=True).click()
    marks = {"parse.py": "changed", "old.txt": "gone", "report.md": "new"}
    for name, mark in marks.items():
        expect(page.locator(".file", has_text=name).locator(".mark")).to_have_text(mark)
    page.get_by_role("button", name="Changes: input/parse.py").click()
    expect(page.locator(".d-added").first).to_contain_text("if part]")
    expect(page.locator(".d-removed").first).to_contain_text('split(",")]')

    page.get_by_role("link", name="Context", exact=True).click()
    expect(page.locator("ul.shares")).to_contain_text("summary")
    expect(page.locator(".request > li").first).to_contain_text("You change code.")
    with visitor.context.expect_page() as opened:
        page.get_by_role("link", name="The raw request", exact=True).click()
    expect(opened.value.locator("body")).to_contain_text('"role": "system"')

    page.get_by_role("link", name="History", exact=True).click()
    expect(page.locator(".history li").first).to_contain_text("ann")
    expect(page.locator(".history li").last).to_contain_text("submitted")


@on_sqlite
def test_tabs_follow_what_happens(site: Site, visitor: Visitor) -> None:
    """Without a reload, and what a person has opened or typed stays."""
    past = Past(site.installation)
    past.begin()
    past.say("One.")
    progress, history = visitor.open(f"/jobs/{past.id}/progress"), visitor.open(f"/jobs/{past.id}/history")
    progress.get_by_text("The ways in words").click()
    bars = progress.locator(".waterfall .bar.w-model")
    expect(bars).to_have_count(2)
    past.say("Two.")
    expect(bars).to_have_count(3)
    expect(progress.locator(".graph details")).to_have_attribute("open", "")
    past.succeed("All done.")
    for page in (progress, history):
        expect(page.locator("#head .badge")).to_have_text("done")
    expect(history.locator(".history li").first).to_contain_text("running → done")


@on_sqlite
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_by_keyboard_and_on_a_phone(site: Site, visitor: Visitor, scheme: str) -> None:
    """Each tab is a link that the keyboard reaches, is marked as the present one, is labelled, legible, and fits."""
    visitor.options = {"viewport": {"width": PHONE[0], "height": PHONE[1]}, "color_scheme": scheme}
    job_id = rich_job(site.installation, _picture())
    page = visitor.open(f"/jobs/{job_id}")
    for name, ready in READY.items():
        link = page.get_by_role("navigation", name="Parts of this job").get_by_role("link", name=name)
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{job_id}" if name == "Conversation" else f"**/{name.lower()}")
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator("#head .badge")).to_be_visible()
        page.locator(ready).first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert faults_of(page) == [], name
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE[0], name
