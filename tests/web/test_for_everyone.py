"""Labels, names, headings, focus, languages, colours, sizes: what a screen reader, a keyboard or a phone needs."""

from __future__ import annotations

import zipfile
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import FilePayload, Page, expect

from jobs import comments
from storage import registry
from tests.factories import WORKER, claim_job, make_job
from tests.web.conftest import PHONE, Site, Visitor
from tests.web.rows import Past

pytestmark = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)

_FAULTS = """() => {
  const faults = [];
  const visible = e => e.checkVisibility();
  const name = e => (e.getAttribute('aria-label') || e.innerText || e.value || '').trim();
  for (const e of document.querySelectorAll('input:not([type=hidden]), select, textarea')) {
    if (!e.labels.length && !e.getAttribute('aria-label')) faults.push(`no label: ${e.outerHTML}`);
  }
  for (const e of document.querySelectorAll('button, a[href], summary')) {
    if (visible(e) && !name(e)) faults.push(`no name: ${e.outerHTML}`);
  }
  for (const e of document.querySelectorAll('img:not([alt])')) faults.push(`no alt: ${e.outerHTML}`);
  for (const e of document.querySelectorAll('[aria-describedby], [aria-labelledby]')) {
    for (const id of `${e.getAttribute('aria-describedby') ?? ''} ${e.getAttribute('aria-labelledby') ?? ''}`.split(/\\s+/)) {
      if (id && !document.getElementById(id)) faults.push(`refers to nothing: ${id}`);
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) faults.push(`id twice: ${id}`);
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (!document.documentElement.lang || !document.title || !document.querySelector('main')) faults.push('no language, title or main');
  for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) faults.push(`tabindex ${e.tabIndex}`);
  if (document.documentElement.scrollWidth > innerWidth + 1) faults.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return faults;
}"""

_FAINT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!text || !e.checkVisibility() || e.closest('.hidden, .skip, #toast')) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + .05) / (b + .05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""


def _some_jobs(site: Site) -> dict[str, str]:
    """One of each kind, with something in every place."""
    where = site.installation
    asking = Past(where, "Sort the *figures*, please.", repository="demo")
    asking.begin()
    asking.say("I have a question.")
    asking.ask("Which order?", ["Up", "Down"], until=4_000_000_000.0, default_answer="Up")
    running = Past(where, "Long words: " + "x" * 300)
    running.begin()
    (call_id,) = running.say(
        "See `this`:\n\n| a | b |\n|--|--|\n| 1 | 2 |", ("Bash", {"command": "y" * 400}), reasoning="Hm."
    )
    running.answer(call_id, "z" * 4000, is_error=True)
    running.say(None, ("Read", {"path": "input/a"}))
    comments.add_comment(where, running.id, None, "A remark.", "ann")
    done = Past(where, "Finish.")
    done.succeed("**All** is done.")
    failed = Past(where, "Fail.")
    failed.end(
        "failed", "fail", "loop", {"detail": "again and again"}, error_message="it went round in circles"
    )
    paused = Past(where, "Stop.")
    paused.end("paused", "exhaust_budget", "budget_exceeded", {"budget": "cost", "limit": 1.5}, max_cost=1.5)
    make_job(site.db, "cancelled")
    for name, sandbox in ((WORKER, "none"), ("b:2", "bwrap")):
        offered = {"version": "1", "tools": [], "pid": 1, "host": "h", "problems": ["no key"]}
        registry.register_worker(
            site.db, {"name": name, "queues": ["agent"], "concurrency": 4, "sandbox": sandbox, **offered}
        )
    registry.cool_down(site.db, "https://models.example/v1 large", 90, "429")
    claim_job(site.db, make_job(site.db, title="lost"), worker="gone:1")
    pasts = {"asking": asking, "running": running, "done": done, "failed": failed, "paused": paused}
    return {name: f"/jobs/{past.id}" for name, past in pasts.items()}


@pytest.mark.parametrize("locale", ["en-GB", "ja-JP"])
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_labelled_legible_and_fits(
    site: Site, visitor: Visitor, locale: str, size: str, scheme: str
) -> None:
    visitor.options = {"locale": locale, "color_scheme": scheme}
    if size == "phone":
        visitor.options["viewport"] = {"width": PHONE[0], "height": PHONE[1]}
    paths = {"list": "/", "new": "/new", "workers": "/workers", "nothing": "/?q=nothing", **_some_jobs(site)}
    faults: list[str] = []
    for name, path in paths.items():
        page = visitor.open(path)
        if path.startswith("/jobs/"):
            page.locator("#side-files").wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("document.documentElement.lang") == locale[:2]
        if name == "new":
            page.locator("[name=piece]").last.check()
            page.locator("[data-graph] svg").wait_for()
        faults += [f"{name}: {fault}" for fault in faults_of(page)]
        page.close()
    login = visitor.fresh().new_page()
    login.goto(f"{site.url}/login")
    faults += [f"login: {fault}" for fault in faults_of(login)]
    assert faults == []


def faults_of(page: Page) -> list[str]:
    """What keeps a person from reading or working with what is shown."""
    found: Any = page.evaluate(_FAULTS)
    return [*found, *page.evaluate(_FAINT), *_axe(page)]


def _axe(page: Page) -> list[str]:
    """What axe finds that is serious or critical; in one language, for its rules look at no words."""
    if page.evaluate("document.documentElement.lang") != "en":
        return []
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def test_the_keyboard_alone_is_enough(site: Site, visitor: Visitor) -> None:
    job_id = make_job(site.db)
    page = visitor.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.goto(f"{site.url}/jobs/{job_id}")
    page.get_by_role("button", name="Cancel job").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#head .badge")).to_have_text("queued")


def test_what_arrives_is_announced_politely(site: Site, visitor: Visitor) -> None:
    past = Past(site.installation)
    page = visitor.open(f"/jobs/{past.id}")
    expect(page.locator(".live")).to_have_text("live")
    past.say("Something new.")
    expect(page.locator("[aria-live=polite]#news")).to_contain_text("Something new.")


def test_the_language_is_switched_in_the_footer_and_stays(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/?q=x")
    page.get_by_role("link", name="日本語").click()
    expect(page.get_by_role("heading", name="条件に合うジョブはありません")).to_be_visible()
    page.goto(f"{site.url}/new")
    expect(page.get_by_label("何をしましょうか？")).to_be_visible()
    page.get_by_role("link", name="English").click()
    expect(page.get_by_label("What is to be done?")).to_be_visible()


def test_times_are_those_of_the_viewers_zone(site: Site, visitor: Visitor) -> None:
    visitor.options = {"timezone_id": "Asia/Tokyo", "locale": "en-GB"}
    make_job(site.db, created_at=1_780_000_000.0)  # 2026-05-28 20:26:40 UTC
    page = visitor.open("/")
    expect(page.locator("tbody time")).to_have_attribute("title", "29 May 2026, 05:26:40 GMT+9")


def test_a_long_conversation_is_read_upwards(site: Site, visitor: Visitor) -> None:
    """The newest part is there at once; what came before is put above it, and the place on the screen stays."""
    past = Past(site.installation, "The beginning.")
    for number in range(200):
        past.say(f"Step {number:03}.")
    page = visitor.open(f"/jobs/{past.id}")
    expect(page.locator(".agent").last).to_contain_text("Step 199.")
    expect(page.locator(".agent").last).to_be_in_viewport()
    for _ in range(2):
        top = page.locator(".item").first
        first_id = top.get_attribute("id")
        page.locator("[data-older]").click()
        expect(page.locator(".item").first).not_to_have_id(str(first_id))
        page.locator(f"#{first_id}").wait_for()
    expect(page.locator("[data-older]")).to_have_count(0)
    texts = page.locator(".agent").all_inner_texts()
    assert [text[-4:-1] for text in texts] == [f"{number:03}" for number in range(200)]
    expect(page.locator(".item").first).to_contain_text("The beginning.")


def test_files_are_added_to_a_running_job(site: Site, visitor: Visitor) -> None:
    """Through the files' route of the API; what it refuses is told, and one refused file stops no other."""
    visitor.expected = ("Failed to load resource",)
    past = Past(site.installation)
    page = visitor.open(f"/jobs/{past.id}/files")
    names = ("a b#?.txt", "日本.csv", "bad ")
    page.locator("#upload").set_input_files(
        [FilePayload(name=name, mimeType="text/plain", buffer=b"1") for name in names]
    )
    for name in names[:2]:
        expect(page.locator("#tab")).to_contain_text(name)
    expect(page.locator("#toast")).to_contain_text("does not name a file")
    with page.expect_download() as download:
        page.locator("#tab").get_by_role("link", name="All as ZIP").click()
    assert sorted(zipfile.ZipFile(download.value.path()).namelist()) == ["input/a b#?.txt", "input/日本.csv"]
