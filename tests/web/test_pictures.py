"""The documentation's pictures can be made again, and those that are kept are small and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.web.conftest import Site
from tests.web.pictures import IMAGES, some_jobs, take

ROOT = Path(__file__).parents[2]
MOST_BYTES = 150_000


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
def test_they_can_be_made(site: Site, browser: Browser, tmp_path: Path) -> None:
    jobs = some_jobs(site.installation)
    made = take(browser, site.url, site.code(), jobs, tmp_path / "images")
    assert {file.name for file in made} == {file.name for file in IMAGES.glob("page-*.png")}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in made)


def test_they_are_small_and_shown() -> None:
    shown = {
        name
        for document in (ROOT / "README.md", ROOT / "docs" / "page.md")
        for name in re.findall(r"images/(page-[\w-]+\.png)", document.read_text(encoding="utf-8"))
    }
    kept = {file.name: file.stat().st_size for file in IMAGES.glob("page-*.png")}
    assert shown == kept.keys()
    assert max(kept.values()) < MOST_BYTES
