"""The page in a real browser, over a real server: in this process on rows made for it, or with workers as processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Playwright,
    Request,
    sync_playwright,
)

from jobs.api.sessions import create_login_code
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from storage.engine import Database
from tests.api.conftest import Api, serving
from tests.jobs.conftest import db, installation
from tests.servers.session import free_port
from tests.servers.workers import CommandFactory, CommandProcess
from tests.strict_endpoint import Mind, Reply, StrictEndpoint
from tests.waiting import wait_until

__all__ = ["db", "installation"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESK = (1280, 900)
PHONE = (390, 844)
PATIENCE = 30_000  # ms; a guard, far above what anything needs


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of this folder."""
    with sync_playwright() as playwright:
        yield launched(playwright)


def launched(playwright: Playwright) -> Browser:
    """The machine's own Chromium. Where there is none, the error says what to install."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found, "needs Chromium: apt-get install -y --no-install-recommends chromium fonts-noto-cjk"
    return playwright.chromium.launch(executable_path=found, chromium_sandbox=False, args=ARGUMENTS)


@dataclass
class Visitor:
    """A person at a browser. What its pages ask of other servers, run or complain of is kept and asserted at the end."""

    browser: Browser
    url: str
    code: Callable[[], str]
    options: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()  # parts of complaints that the test brings about
    _context: BrowserContext | None = None

    @property
    def context(self) -> BrowserContext:
        """Its browser profile, logged in; made when first needed."""
        if self._context is None:
            self._context = self.fresh()
            self.log_in(self._context.new_page()).close()
        return self._context

    def fresh(self) -> BrowserContext:
        """A profile that is not logged in."""
        wanted = {"viewport": {"width": DESK[0], "height": DESK[1]}, "locale": "en-GB"} | self.options
        made = self.browser.new_context(**wanted)
        made.set_default_timeout(PATIENCE)
        made.on("page", self._watch)
        return made

    def log_in(self, page: Page) -> Page:
        """Through the address that `sostenuto up` prints."""
        page.goto(f"{self.url}/login#{self.code()}")
        page.wait_for_url(f"{self.url}/")
        return page

    def open(self, path: str = "/") -> Page:
        """A new tab."""
        page = self.context.new_page()
        page.goto(self.url + path)
        return page

    def assert_clean(self) -> None:
        """Nothing was asked of another server, no script failed or ran that is not ours, no dialog was opened."""
        found = [text for text in self.complaints if not any(part in text for part in self.expected)]
        assert found == []

    def close(self) -> None:
        for context in self.browser.contexts:
            context.close()

    def _watch(self, page: Page) -> None:
        def asked(request: Request) -> None:
            if not request.url.startswith(f"{self.url}/"):
                self.complaints.append(f"request to {request.url}")

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(f"{message.type}: {message.text}")

        def opened(dialog: Dialog) -> None:
            self.complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("request", asked)
        page.on("console", said)
        page.on("dialog", opened)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))


@dataclass
class Site:
    """A server in this process; its rows are written by the tests."""

    installation: Installation
    url: str

    @property
    def db(self) -> Database:
        return self.installation.db

    def code(self) -> str:
        return create_login_code(self.db, "local").code


@pytest.fixture
def site(installation: Installation) -> Iterator[Site]:
    for url in serving(installation):
        yield Site(installation, url)


@pytest.fixture
def visitor(site: Site, browser: Browser) -> Iterator[Visitor]:
    """At the server of this process."""
    yield from visiting(Visitor(browser, site.url, site.code))


def visiting(found: Visitor) -> Iterator[Visitor]:
    """Closes what it opened, and asserts that it was clean."""
    yield found
    found.close()
    found.assert_clean()


@dataclass
class Client:
    """The page without a browser, as who a token says."""

    api: Api

    def __call__(self, owner: str = "local", *scopes: str) -> httpx2.Client:
        return self.api.client(owner, *scopes)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    api = Api(site.installation, site.url)
    yield Client(api)
    api.close()


@dataclass
class Stack:
    """A whole installation as processes: a server, a worker, and a model that the test leads."""

    endpoint: StrictEndpoint
    installation: Installation
    port: int
    _commands: CommandFactory
    _env: dict[str, str]
    web: CommandProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def code(self) -> str:
        return create_login_code(self.installation.db, "local").code

    def start_web(self) -> None:
        """The server, at the same address as before."""
        self.web = self._commands.run("web", "--port", str(self.port), env=self._env)
        self.web.wait_for_log("listening on ")

    def kill_web(self) -> None:
        assert self.web is not None
        self.web.kill()

    def start_worker(self) -> CommandProcess:
        return self._commands("--concurrency", "4", env=self._env)


def play(*replies: Reply) -> Mind:
    """A mind that gives these replies by how many the conversation holds already."""
    return lambda request: replies[min(request.replies, len(replies) - 1)]


PIECE = """\
name: desk
description: Works alone.
initial_movement: work
movements:
  - name: work
    edit: true
    persona: You are careful.
    instruction: Do the task.
    allowed_tools: ["*"]
    rules:
      - {condition: done, next: COMPLETE}
      - {condition: unclear, next: ASK}
"""


@pytest.fixture
def stack(worker_process: CommandFactory, data_dir: Path) -> Iterator[Stack]:
    (data_dir / "pieces").mkdir()
    (data_dir / "pieces" / "desk.yaml").write_text(PIECE)
    with StrictEndpoint(play(Reply("I think."))) as endpoint:
        env = {
            "SOSTENUTO_DATA_DIR": str(data_dir),
            "SOSTENUTO_MODEL": "strict",
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "none",
        }
        with open_installation(Settings(data_dir=data_dir)) as opened:
            made = Stack(endpoint, opened, free_port(), worker_process, env)
            made.start_web()
            made.start_worker()
            yield made


@pytest.fixture
def guest(stack: Stack, browser: Browser) -> Iterator[Visitor]:
    """At the server of the stack."""
    yield from visiting(Visitor(browser, stack.url, stack.code))


def wait_for_count(page: Page, selector: str, count: int) -> None:
    """Until so many elements are there."""
    wait_until(lambda: page.locator(selector).count() == count, reason=f"{count} of {selector}")
