"""What the page is made of is part of the package, and what others wrote comes with its licence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jobs

ROOT = Path(__file__).parents[2]
PACKAGE = Path(jobs.__file__).parent


def test_every_file_of_the_page_is_packaged() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["jobs"]
    packaged = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    needed = {
        path for path in (PACKAGE / "web").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert len(needed) > 25
    assert needed <= packaged


def test_vendored_scripts_have_their_licences_and_versions() -> None:
    folder = PACKAGE / "web" / "assets" / "vendor"
    scripts = sorted(path.name for path in folder.glob("*.js"))
    told = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    for name in scripts:
        library, version = name.removesuffix(".min.js").rsplit("-", 1)
        assert "Zero-Clause BSD" in (folder / f"{library}-LICENSE.txt").read_text()
        assert library in told
        assert version in told
    assert len(scripts) == 2
