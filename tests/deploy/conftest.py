"""Fixtures of the tests of deploying: benches as in tests/resilience, and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.resilience.conftest import bench, sqlite_bench
from tests.web.conftest import launched

__all__ = ["bench", "sqlite_bench"]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of this folder."""
    with sync_playwright() as playwright:
        yield launched(playwright)
