"""Who may import what: worker → jobs → storage, SQL only in storage/, Celery only in its few files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("jobs", "worker", "storage", "sostenuto")
CLIENT_MAY_IMPORT = {"httpx2", "sostenuto"} | sys.stdlib_module_names

FORBIDDEN_PACKAGES = {
    "storage": {"jobs", "worker", "tests"},
    "jobs": {"worker", "tests"},
    "worker": {"tests"},
    "sostenuto": {"jobs", "worker", "storage", "tests"},
}
SQL_MODULES = {"alembic", "psycopg", "sqlalchemy", "sqlite3"}
CELERY_MODULES = {"billiard", "celery", "kombu"}
CELERY_FILES = {"worker/app.py", "worker/bootsteps.py", "worker/tasks.py", "jobs/wakeups.py"}


def imported_modules(source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of each import, those in functions, under TYPE_CHECKING and by name included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = ast.unparse(node.func).rpartition(".")[2]
            if function in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def violations(files: Mapping[str, str]) -> list[str]:
    """One line for each import that breaks a rule; `files` maps paths below the root to their source."""
    found = []
    for path, source in files.items():
        package = path.partition("/")[0]
        for line, module in imported_modules(source):
            top = module.partition(".")[0]
            if module.startswith("."):
                found.append(f"{path}:{line}: relative import: its direction cannot be seen")
            elif top in FORBIDDEN_PACKAGES[package] or (
                package == "sostenuto" and top not in CLIENT_MAY_IMPORT
            ):
                found.append(f"{path}:{line}: {package} may not import {module}")
            elif top in SQL_MODULES and package != "storage":
                found.append(f"{path}:{line}: {module} outside of storage/")
            elif top in CELERY_MODULES and path not in CELERY_FILES:
                found.append(f"{path}:{line}: {module} outside of Celery's files")
    return found


def test_the_project_keeps_its_import_rules() -> None:
    files = {
        str(file.relative_to(ROOT)): file.read_text()
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
    }
    assert {path.partition("/")[0] for path in files} == set(PACKAGES)
    found = violations(files)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("storage/jobs.py", "from jobs.states import State"),
        ("storage/jobs.py", "import worker.app"),
        ("jobs/submit.py", "from worker.agent import run"),
        ("jobs/submit.py", "if TYPE_CHECKING:\n    import worker"),
        ("jobs/submit.py", "def later():\n    from worker import app"),
        ("jobs/submit.py", "import importlib\nimportlib.import_module('worker.app')"),
        ("jobs/submit.py", "from . import states"),
        ("jobs/views.py", "import sqlalchemy as sa"),
        ("jobs/views.py", "from sqlite3 import connect"),
        ("worker/claim.py", "from alembic import command"),
        ("worker/claim.py", "import psycopg.sql"),
        ("worker/claim.py", "from celery import Celery"),
        ("jobs/submit.py", "import kombu.connection"),
        ("storage/engine.py", "__import__('celery')"),
        ("worker/agent.py", "from tests import waiting"),
        ("sostenuto/client.py", "from jobs.states import TERMINAL"),
        ("sostenuto/client.py", "import pydantic"),
        ("sostenuto/client.py", "def later():\n    import anyio"),
    ],
)
def test_each_rule_finds_its_breach(path: str, source: str) -> None:
    assert len(violations({path: source})) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("worker/agent.py", "from jobs.states import State\nfrom storage.errors import LeaseLost"),
        ("jobs/submit.py", "import storage.errors"),
        ("storage/engine.py", "import sqlite3, sqlalchemy"),
        ("worker/bootsteps.py", "from celery import bootsteps"),
        ("jobs/wakeups.py", "from kombu import Connection"),
        ("jobs/submit.py", "from jobs import workers_page  # a name that begins alike"),
        ("jobs/submit.py", "import workerlib"),
        ("sostenuto/client.py", "import httpx2, json\nfrom sostenuto.errors import NotFound"),
    ],
)
def test_what_the_rules_allow(path: str, source: str) -> None:
    assert violations({path: source}) == []
