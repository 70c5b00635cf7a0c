"""The repository as a whole: layout, pins, links, and what must not be named in it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())

REQUIRED = {
    ".ci", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "Makefile", "Procfile", "README.md",
    "benchmarks", "deploy", "docker-compose.yml", "docs", "examples", "jobs", "pyproject.toml", "requirements-dev.txt", "requirements.txt", "sostenuto", "storage", "tests", "worker",
}  # fmt: skip
ALLOWED = REQUIRED | {
    ".dockerignore", ".gitignore", "LICENSE",
}  # fmt: skip


@functools.cache
def tracked_files() -> list[Path]:
    """What a clone has, and what the next commit would add to it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    files = (ROOT / os.fsdecode(name) for name in output.split(b"\0") if name)
    return [file for file in files if file.is_file()]


def _pins(name: str) -> dict[str, str]:
    """Package → version of a requirements file; fails on lines that are neither pin nor hash."""
    pins: dict[str, str] = {}
    for entry in (ROOT / name).read_text().replace("\\\n", " ").splitlines():
        match = re.fullmatch(
            r"([a-z0-9._-]+)==(\S+)( ;.*?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)", entry.rstrip()
        )
        assert match, f"{name}: not a pin with hashes: {entry[:100]}"
        pins[canonicalize_name(match[1])] = match[2]
    return pins


def test_the_top_level_is_the_agreed_one() -> None:
    top = {file.relative_to(ROOT).parts[0] for file in tracked_files()}
    assert top >= REQUIRED
    assert top <= ALLOWED


def test_every_folder_with_python_is_a_package() -> None:
    """Without it a test folder's modules collide, and setuptools leaves a package out."""
    folders = {
        file.parent
        for file in tracked_files()
        if file.suffix == ".py"
        and file.relative_to(ROOT).parts[0] in ("jobs", "worker", "storage", "sostenuto", "tests")
    }
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """A template or a migration that setuptools leaves out is missed only where the project is installed."""
    packages = tuple(
        pattern
        for pattern in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
        if "*" not in pattern
    )
    shipped = {
        name
        for file in tracked_files()
        if (name := str(file.relative_to(ROOT))).startswith(tuple(f"{package}/" for package in packages))
    }
    for name in (*shipped, "pyproject.toml", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, tmp_path / "dist"], cwd=tmp_path, check=True, capture_output=True
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == shipped


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_pinned_and_hashed_and_name_no_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()
    assert len(_pins(name)) > 50


def test_both_requirements_agree() -> None:
    runtime, development = _pins("requirements.txt"), _pins("requirements-dev.txt")
    assert runtime.items() <= development.items()


@pytest.mark.parametrize(
    ("name", "ranges"),
    [
        ("requirements.txt", [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]),
        ("requirements-dev.txt", PYPROJECT["project"]["optional-dependencies"]["dev"]),
    ],
)
def test_the_pins_lie_in_the_ranges_of_pyproject(name: str, ranges: list[str]) -> None:
    pins = _pins(name)
    requirements = [Requirement(text) for text in ranges]
    wrong = [
        f"{requirement} is pinned to {pins.get(canonicalize_name(requirement.name))}: run make lock"
        for requirement in requirements
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
    ]
    assert wrong == []


def test_the_version_is_the_change_logs_newest() -> None:
    changelog = ROOT / "CHANGELOG.md"
    if changelog in tracked_files():
        headings = re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", changelog.read_text(), re.MULTILINE)
        assert headings[:1] == [PYPROJECT["project"]["version"]]


def _anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def _broken_links(document: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = document if not path else (document.parent / path)
        if not file.exists() or (
            anchor and anchor not in map(_anchor, re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE))
        ):
            broken.append(target)
    return broken


def test_links_in_documents_lead_somewhere() -> None:
    broken = {
        str(file.relative_to(ROOT)): links
        for file in tracked_files()
        if file.suffix == ".md" and (links := _broken_links(file))
    }
    assert broken == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# A `b`, c\n[1](#a-b-c) [2](page.md#a-b-c) [3](no.md) [4](#no) `[5](code.md)` [6](https://x.y)"
    )
    assert _broken_links(document) == ["no.md", "#no"]


# Each pattern is written so that it does not match itself: this file passes its own test.
FORBIDDEN = {
    "a package registry's host": r"\b(?:pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|deb[.]debian[.]org)",
    "a path of the machine it was written on": r"(?<![\w.*}/-])/[w]ork\b",
    "an issue number": r"\bissue [#]\d",
}


def _forbidden_words(text: str) -> list[str]:
    return [what for what, pattern in FORBIDDEN.items() if re.search(pattern, text, re.IGNORECASE)]


def test_the_project_stands_alone() -> None:
    found = {}
    for file in tracked_files():
        try:
            words = _forbidden_words(file.read_text())
        except UnicodeDecodeError:
            continue  # a binary
        if words:
            found[str(file.relative_to(ROOT))] = words
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("pip install --index-url https://pypi~.org/simple", 1),
        ("see /~work/main", 1),
        ("as in issue ~#12", 1),
        ("the folder /workspaces/x, a/work/b, /home/me/work/c and the worker/ package", 0),
    ],
)
def test_what_must_not_be_named_is_found(text: str, count: int) -> None:
    assert len(_forbidden_words(text.replace("~", ""))) == count


@pytest.mark.parametrize("script", [".ci/run", ".ci/venv"])
def test_scripts_are_executable_and_strict(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)


def test_ci_runs_exactly_make_check() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().splitlines()[-1] == "make check"
