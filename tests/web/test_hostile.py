"""Whatever a model, a file or a person writes stays text in a real browser, in every field that shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, expect

from jobs import comments
from jobs.installation import Installation
from jobs.workspace import InputFile, workspace_path
from storage.records import Commit, NewEvent, NewMessage, NewPlan
from tests.factories import set_columns
from tests.web.conftest import Site, Visitor, wait_for_count
from tests.web.hostile import ALL, FOREIGN, LINES, TEXTS
from tests.web.rows import OWNER, Past

pytestmark = [pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True), pytest.mark.timeout(300)]

ALLOWED = "http://e.example"
_FACTS = """() => ({
  pwned: window.pwned ?? null,
  scripts: [...document.querySelectorAll('script')].map(s => s.src),
  foreign: [...document.querySelectorAll('iframe, object, embed, video, base, form[action], svg:not(.bell svg, .graph svg, .meter svg, .waterfall svg, .gauge, .shares), math, style, link, img')]
    .map(e => `${e.tagName} ${e.getAttribute('src') ?? e.getAttribute('href') ?? e.getAttribute('action') ?? ''}`),
  handlers: [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])
    .filter(a => /^on|^hx-on|^data-hx|^style$/i.test(a.name)).map(a => a.name),
  links: [...document.querySelectorAll('a[href]')].map(a => [a.protocol, a.href, a.rel, a.target]),
  text: document.body.innerText,
})"""


def _assert_inert(page: Page, url: str) -> dict[str, Any]:
    """Nothing of the texts became an element, a handler, a request or a link to where none may lead."""
    facts: dict[str, Any] = page.evaluate(_FACTS)
    assert facts["pwned"] is None
    assert all(source.startswith(f"{url}/assets/") for source in facts["scripts"])
    assert facts["handlers"] == []
    for found in facts["foreign"]:
        name, _, source = found.partition(" ")
        assert name in ("LINK", "IMG", "FORM")
        assert source.startswith("/"), found
    for protocol, href, rel, target in facts["links"]:
        assert protocol in ("http:", "https:", "mailto:"), href
        if not href.startswith(f"{url}/"):
            assert (rel, target) == ("noopener noreferrer nofollow", "_blank"), href
    assert not any(
        character in facts["text"] for character in "\x1b\x9b\x07\u202e\u2066\u200b\u061c\ufeff\x85"
    )
    return facts


def _hostile_job(where: Installation) -> Past:
    """A job whose every field that others write holds the whole corpus, or its lines one after the other."""
    metadata = {line[:100]: line for line in LINES}
    past = Past(
        where, ALL, metadata=metadata, repository=LINES[0], task_identifier=LINES[2], user=LINES[3], model=LINES[4],
        task_type=LINES[1], files=[InputFile("a.html", ALL.encode())],
    )  # fmt: skip
    set_columns(where.db, past.id, title=" ".join(LINES))
    root = workspace_path(where.settings.data_dir, past.id) / "output"
    for number, line in enumerate(LINES):
        name = f"{number} " + line.replace("/", "_").replace("\x00", "")[:60]
        (root / f"{name}.md").write_text(ALL)
    (root / '"><img src=x onerror=window.pwned=1>').symlink_to("/etc/passwd")
    past.begin(LINES[0], ALL)
    past.write(NewMessage("user", "head", ALL, extra={"block": LINES[1]}), what=Commit.GAP)
    past.write(NewMessage("user", "gap", ALL, extra={"reminder": LINES[2]}), what=Commit.GAP)
    past.write(NewMessage("user", "summary", ALL), what=Commit.GAP)
    comments.add_comment(where, past.id, None, ALL, LINES[3])
    calls = past.say(
        ALL,
        *[(line, {"command": text, line: text}) for text, line in zip(TEXTS, LINES, strict=True)],
        reasoning=ALL,
    )
    for call_id, text in zip(calls, TEXTS, strict=True):
        past.answer(call_id, text, text, is_error=True)
    past.say(None, ("Bash", ALL), ("transition", {"next_step": LINES[1], "summary": ALL, "lessons": ALL}))
    past.say(
        None,
        ("transition", {"next_step": "ABORT", "summary": {"a": ALL}}),
        ("transition", {"next_step": "WAIT_SUBTASKS"}),
    )
    todos = [{"id": line[:20], "content": line[:500], "status": "pending"} for line in LINES]
    checklist = {"name": "list", "items": [line[:200] for line in LINES]}
    noted = past.say(None, ("todo_write", {"todos": todos}), ("checklist_create", checklist), ("plan", {}))
    past.answer(noted[0], "ok", "todo_write")
    past.answer(noted[1], "ok", "checklist_create")
    result = NewMessage("tool", "tool", "ok", tool_call_id=noted[2], tool_name="plan")
    handed = {"from": LINES[0], "to": LINES[1], "summary": ALL, "lessons": ALL}
    past.write(
        result,
        what=Commit.RESULT,
        plan=NewPlan(LINES[0], ALL),
        events=[
            NewEvent("transition", LINES[5], data=handed),
            NewEvent("subtask", LINES[6], data={"job": LINES[0], "title": LINES[7]}),
            NewEvent("budget_raised", LINES[8], data={LINES[9]: LINES[10]}),
        ],
    )
    return past


def test_every_field_of_a_job(site: Site, visitor: Visitor) -> None:
    past = _hostile_job(site.installation)
    past.ask(ALL, LINES, until=4_000_000_000.0, default_answer=ALL)
    page = visitor.open(f"/jobs/{past.id}")
    expect(page.locator("#side-todos li")).to_have_count(len(LINES))
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    page.evaluate(
        "document.querySelectorAll('#conversation .call, .prose a').forEach(e => { e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})) })"
    )
    facts = _assert_inert(page, site.url)
    assert "{{ 7*7 }}" in facts["text"]
    assert f"<script>{'window.pwned=1'}</script>" in facts["text"]
    assert any(href.startswith((ALLOWED, FOREIGN)) for _, href, *_ in facts["links"])
    assert page.locator(
        ".answers button"
    ).all_inner_texts()  # the choices are buttons, with their words on them
    page.locator("#side-files button").first.click()
    page.locator("#preview .prose").wait_for()
    _assert_inert(page, site.url)


def test_every_tab_of_a_job(site: Site, visitor: Visitor) -> None:
    """The waterfall's tool names, lessons, plans, file names, what the model sees, events; code in any language; a diff."""
    past = _hostile_job(site.installation)
    fences = "\n".join(f"```{language}\n{ALL}\n```\n" for language in ("python", "html", "<b>", 'js x="1"'))
    past.say(fences)
    shown = {
        "": "#conversation",
        "progress": ".plan .prose",
        "files": ".tree .file",
        "context": "#now p:not(.loading)",
        "history": ".history li",
    }
    for tab, there in shown.items():
        page = visitor.open(f"/jobs/{past.id}/{tab}".rstrip("/"))
        page.locator(there).first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        _assert_inert(page, site.url)
        page.close()
    (workspace_path(site.installation.settings.data_dir, past.id) / "input" / "a.html").write_text(
        f"{ALL}\nmore"
    )
    page = visitor.open(f"/jobs/{past.id}/files")
    page.get_by_role("button", name="Changes").click()
    page.locator(".diff").wait_for()
    _assert_inert(page, site.url)


def test_what_arrives_live(site: Site, visitor: Visitor) -> None:
    """The same through the stream of events: no text can end an event, or begin another."""
    past = Past(site.installation, "Wait.")
    page = visitor.open(f"/jobs/{past.id}")
    expect(page.locator(".live")).to_have_text("live")
    past.begin()
    for text in TEXTS:
        (call_id,) = past.say(text, (text[:200], text))
        past.answer(call_id, text)
    comments.add_comment(site.installation, past.id, None, ALL, OWNER)
    past.succeed(ALL)
    expect(page.locator("#head .badge")).to_have_text("done")
    expect(page.locator(".live")).to_have_text("ended")
    wait_for_count(page, ".item.call", len(TEXTS))
    wait_for_count(page, ".item.agent:not(.ending)", len(TEXTS))
    _assert_inert(page, site.url)


def test_the_list_and_its_filters(site: Site, visitor: Visitor) -> None:
    for text, line in zip(TEXTS, LINES, strict=True):
        past = Past(site.installation, text, priority=1)
        past.end("failed", "fail", "model_refused", {"detail": line}, error_message=text)
    page = visitor.open("/")
    expect(page.locator("tbody tr")).to_have_count(len(TEXTS))
    _assert_inert(page, site.url)
    for line in LINES:
        page.goto(f"{site.url}/")
        page.get_by_label("Title contains").fill(line[:150])
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**q=**")
        _assert_inert(page, site.url)


def test_what_a_page_sends_back(site: Site, visitor: Visitor) -> None:
    """Errors that repeat an input, a piece's description, a language or a place that are none."""
    folder = site.installation.settings.data_dir / "pieces"
    folder.mkdir(parents=True)
    described = " ".join(LINES[number] for number in (0, 2, 3, 11, 20))
    movement = {
        "name": "w",
        "persona": "p",
        "instruction": "i",
        "allowed_tools": [],
        "default_next": "COMPLETE",
    }
    piece = {"name": "evil", "description": described[:500], "initial_movement": "w", "movements": [movement]}
    (folder / "evil.yaml").write_text(json.dumps(piece))
    page = visitor.open("/new")
    expect(page.locator("input[value=evil]")).to_be_visible()
    _assert_inert(page, site.url)
    visitor.expected = ("Failed to load resource", "Response Status Error Code 422", "htmx:")
    page.get_by_label("What is to be done?").fill("x")
    evil = FilePayload(name='"><img src=x onerror=window.pwned=1>.txt ', mimeType="text/plain", buffer=b"x")
    page.locator("input[type=file]").set_input_files([evil])
    page.get_by_role("button", name="Start").click()
    page.locator("#error-files:not(:empty), .item").first.wait_for(state="attached")
    _assert_inert(page, site.url)
    for path in (f"/?lang={LINES[0]}", f"/jobs/{LINES[0].replace('/', '_')}", f"/?state={LINES[2]}"):
        page.goto(site.url + path)
        assert page.evaluate("window.pwned ?? null") is None
