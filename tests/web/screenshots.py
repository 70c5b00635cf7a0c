"""`python -m tests.web.screenshots`: pictures of every view, at two sizes, light and dark, into docs/images/.

The rows are written as workers would have written them, on SQLite in a folder that is thrown away; the browser is the
machine's own Chromium. A view is a `View` in `VIEWS`: its name, its address, and what a person does before looking.
"""

from __future__ import annotations

import argparse
import io
import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from jobs.api.sessions import create_login_code
from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from storage.engine import Database
from storage.migrate import upgrade
from tests.api.conftest import serving
from tests.web.conftest import DESK, PHONE, launched
from tests.web.scenes import build_scene

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PALETTE = 160
SIZES: dict[str, ViewportSize] = {
    "desk": {"width": DESK[0], "height": DESK[1]},
    "phone": {"width": PHONE[0], "height": PHONE[1]},
}
COLOURS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LOCALES = {"en": "en-GB", "ja": "ja-JP"}


@dataclass(frozen=True, slots=True)
class View:
    """What is shown: `path` names jobs of the scene; `prepare` leads to what is to be seen."""

    name: str
    path: str
    prepare: Callable[[Page], object] = id


def _answering(page: Page) -> None:
    page.locator(".answer summary").first.click()


def _piece(page: Page) -> None:
    page.locator("#f-instruction").fill(
        "Compare the two offers and say which one is cheaper over five years."
    )
    page.get_by_label("research-report").check()
    page.locator("[data-graph] svg").wait_for()
    page.locator("[data-graph]").scroll_into_view_if_needed()


def _written(page: Page) -> None:
    page.locator(".seen img").scroll_into_view_if_needed()  # it is loaded when it comes into view
    page.locator(".seen img").evaluate("image => image.decode()")
    page.locator(".written").evaluate("written => written.scrollIntoView({ block: 'end' })")


def _ready(selector: str) -> Callable[[Page], object]:
    """Waits for it; on a phone the head stands above, so that the page is scrolled to what the tab is about."""

    def prepare(page: Page) -> None:
        page.locator(selector).first.wait_for()
        if page.viewport_size == SIZES["phone"]:
            page.evaluate("document.querySelector('.main').scrollIntoView()")

    return prepare


def _changes(page: Page) -> None:
    page.get_by_role("button", name="Changes: input/parse.py").click()
    _ready(".diff")(page)


VIEWS = [
    View("list", "/"),
    View("list-answer", "/?state=yours", _answering),
    View("list-nothing", "/?q=xyzzy"),
    View("new", "/new"),
    View("new-piece", "/new", _piece),
    View("workers", "/workers"),
    View("job", "/jobs/{done}"),
    View("job-question", "/jobs/{asking}"),
    View("job-running", "/jobs/{running}"),
    View("job-live", "/jobs/{rich}", _written),
    View("job-progress", "/jobs/{rich}/progress", _ready(".waterfall")),
    View("job-files", "/jobs/{rich}/files", _changes),
    View("job-context", "/jobs/{rich}/context", _ready("ul.shares")),
    View("job-history", "/jobs/{rich}/history", _ready(".history li")),
    View("error", "/jobs/none"),
]


def take(folder: Path, only: str = "", language: str = "en") -> list[Path]:
    """Takes the pictures of the views whose name holds `only`; gives their files."""
    taken = []
    with _site() as (installation, url), sync_playwright() as playwright:
        scene = build_scene(installation)
        browser = launched(playwright)
        for (size, viewport), colours in itertools.product(SIZES.items(), COLOURS):
            context = browser.new_context(viewport=viewport, color_scheme=colours, locale=LOCALES[language])
            page = context.new_page()
            page.goto(f"{url}/login#{create_login_code(installation.db, 'local').code}")
            page.wait_for_url(f"{url}/")
            for view in VIEWS:
                if only in view.name:
                    target = folder / f"page-{view.name}-{size}-{colours}.png"
                    _shoot(page, url + view.path.format(**asdict(scene)), view, target)
                    taken.append(target)
            context.close()
        browser.close()
    return taken


def _shoot(page: Page, address: str, view: View, target: Path) -> None:
    page.goto(address)
    view.prepare(page)
    page.locator("#attention:not([hidden])").wait_for()
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    palette = picture.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
    palette.save(target, optimize=True)


@contextmanager
def _site() -> Iterator[tuple[Installation, str]]:
    with tempfile.TemporaryDirectory(prefix="sostenuto-pictures-") as folder:
        settings = Settings(data_dir=Path(folder), database_url=f"sqlite:///{folder}/jobs.db")
        database = Database(settings.database_url)
        upgrade(database)
        database.close()
        with open_installation(settings) as installation:
            server = serving(installation)
            try:
                yield installation, next(server)
            finally:
                next(server, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the views' names")
    parser.add_argument("--language", choices=("en", "ja"), default="en")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for path in take(chosen.folder, chosen.only, chosen.language):
        print(f"{path}  {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
