"""What people do with the page, from the login to the result: a real browser, server, worker and model endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jobs.states import State
from jobs.views import get_job
from tests.strict_endpoint import Call, Reply
from tests.waiting import wait_until
from tests.web.conftest import Stack, Visitor, play

pytestmark = pytest.mark.timeout(300)
expect.set_options(timeout=30_000)


def _call(name: str, **arguments: object) -> Call:
    return Call(name, arguments)


def _end(step: str, summary: str, **more: object) -> Reply:
    return Reply(calls=(_call("transition", next_step=step, summary=summary, **more),))


def _new_task(visitor: Visitor, instruction: str, *files: Path) -> Page:
    """Gives a task through the form; the page is then its job's."""
    page = visitor.open("/new")
    page.get_by_label("What is to be done?").fill(instruction)
    page.get_by_label("desk").check()
    if files:
        page.locator("input[type=file]").set_input_files(list(files))
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    return page


def _id(page: Page) -> str:
    return page.url.rpartition("/")[2]


def _wait_for_state(stack: Stack, page: Page, state: State) -> None:
    wait_until(
        lambda: get_job(stack.installation, _id(page), None).state == state, reason=f"the job is {state}"
    )


def test_a_task_with_two_files_from_the_login_to_the_download(
    stack: Stack, guest: Visitor, tmp_path: Path
) -> None:
    """Steps appear without a reload; the question is answered in its place; the result is downloaded."""
    stack.endpoint.mind = play(
        Reply(
            "I read **both** files.", (_call("Read", path="input/a.csv"), _call("Read", path="input/b.txt"))
        ),
        _end("ASK", "Which currency?", choices=["Euro", "Yen"]),
        Reply("Now I write it.", (_call("Write", path="output/report.md", content="# Sum\n\n3 Yen\n"),)),
        _end("COMPLETE", "It is in [the report](output/report.md)."),
    )
    gate = stack.endpoint.hold()
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "b.txt").write_text("in the shop's currency")

    page = _new_task(guest, "Add *it* up.", tmp_path / "a.csv", tmp_path / "b.txt")
    gate.wait_held()
    expect(page.locator("#head .badge")).to_have_text("running")
    expect(page.locator(".item.person em")).to_have_text("it")
    expect(page.locator("#side-files")).to_contain_text("input/b.txt")
    page.evaluate("window.sameDocument = true")
    gate.release()

    expect(page.locator(".agent strong")).to_have_text("both")
    expect(page.locator(".call")).to_have_count(2)
    expect(page.locator("#question")).to_contain_text("Which currency?")
    expect(page.locator("#head .badge")).to_have_text("needs you")
    page.locator(".call summary").first.click()
    expect(page.locator(".call").first).to_contain_text("input/a.csv")
    page.get_by_role("button", name="Yen").click()

    expect(page.locator(".ending.done")).to_contain_text("It is in the report.")
    expect(page.locator("#head .badge")).to_have_text("done")
    expect(page.locator(".item.person").last).to_contain_text("Yen")
    expect(page.locator("#question")).to_have_count(0)
    with page.expect_download() as download:
        page.locator("#side-files").get_by_role("link", name="output/report.md").click()
    assert Path(download.value.path()).read_text() == "# Sum\n\n3 Yen\n"
    with page.expect_download() as download:
        page.locator(".ending.done").get_by_role("link", name="the report").click()
    assert download.value.suggested_filename == "report.md"
    page.get_by_role("button", name="Preview: output/report.md").click()
    expect(page.locator("#preview h1")).to_have_text("Sum")
    assert page.evaluate("window.sameDocument") is True
    stack.endpoint.assert_clean()


def test_pause_resume_cancel_retry(stack: Stack, guest: Visitor) -> None:
    stack.endpoint.mind = play(
        Reply("One.", (_call("Glob", pattern="*"),)),
        Reply("Two.", (_call("Glob", pattern="input/*"),)),
        _end("COMPLETE", "Ready."),
    )
    first = stack.endpoint.hold()
    page = _new_task(guest, "Slowly, please.")
    first.wait_held()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#head")).to_contain_text("pausing after this step")
    first.release()
    expect(page.locator("#head .badge")).to_have_text("paused")

    second = stack.endpoint.hold()
    page.get_by_role("button", name="Resume").click()
    second.wait_held()
    expect(page.locator("#head .badge")).to_have_text("running")
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes, go on").click()
    expect(page.locator("#head .badge")).to_have_text("cancelled")
    second.release()

    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#head .badge")).to_have_text("done")
    expect(page.locator(".ending.done")).to_contain_text("Ready.")
    assert page.locator(".agent").all_inner_texts()[0].endswith("One.")


def test_two_tabs_show_the_same_and_a_comment_once(stack: Stack, guest: Visitor) -> None:
    stack.endpoint.mind = play(Reply("I begin.", (_call("Glob", pattern="*"),)), _end("COMPLETE", "Ready."))
    gate = stack.endpoint.hold()
    one = _new_task(guest, "Work.")
    two = guest.open(f"/jobs/{_id(one)}")
    gate.wait_held()
    one.get_by_label("Comment", exact=True).fill("Mind the gap.")
    one.get_by_label("Comment", exact=True).press("Tab")
    one.get_by_role("button", name="Send").click()
    for page in (one, two):
        expect(page.locator(".item.person", has_text="Mind the gap.")).to_have_count(1)
    expect(one.get_by_label("Comment", exact=True)).to_have_value("")
    two.get_by_label("Comment", exact=True).fill("half a thou")
    gate.release()
    for page in (one, two):
        expect(page.locator("#head .badge")).to_have_text("done")
        expect(page.locator(".item.person", has_text="Mind the gap.")).to_have_count(1)


def test_a_page_goes_on_when_the_server_was_killed(stack: Stack, guest: Visitor) -> None:
    """Nothing that happened meanwhile is missing, and nothing is there twice."""
    guest.expected = ("net::ERR_", "Failed to load resource", "htmx:sendError", "htmx:afterRequest")
    replies = [Reply(f"Step {n}.", (_call("Glob", pattern=f"{n}*"),)) for n in range(1, 8)]
    stack.endpoint.mind = play(*replies, _end("COMPLETE", "Ready."))
    gate = stack.endpoint.hold()
    page = _new_task(guest, "Seven steps.")
    gate.wait_held()
    expect(page.locator(".live")).to_have_text("live")
    stack.kill_web()
    expect(page.locator(".live")).to_have_text("reconnecting…")
    gate.release()
    _wait_for_state(stack, page, State.SUCCEEDED)
    stack.start_web()
    expect(page.locator(".live")).to_have_text("ended")
    said = [text for text in page.locator(".agent").all_inner_texts() if "Step" in text]
    assert [text.split()[-1] for text in said] == [f"{n}." for n in range(1, 8)]
    assert page.locator(".call").count() == 7
    ids = page.locator("[id]").evaluate_all("found => found.map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_the_list_follows_while_jobs_come_and_change(stack: Stack, guest: Visitor) -> None:
    stack.endpoint.mind = play(_end("COMPLETE", "Ready."))
    gate = stack.endpoint.hold()
    overview = guest.open("/")
    expect(overview.get_by_role("heading", name="No jobs yet")).to_be_visible()
    _new_task(guest, "Appear by yourself.")
    expect(overview.locator("tbody tr")).to_have_count(1)
    expect(overview.locator("tbody .badge")).to_have_text("running")
    gate.release()
    expect(overview.locator("tbody .badge")).to_have_text("done")
