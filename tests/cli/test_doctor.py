"""`sostenuto doctor`: an installation in order, and each thing that makes it fail, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage import registry
from storage.engine import Database
from tests.cli.conftest import Cli


def _findings(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [finding for finding in data["findings"] if finding["name"].startswith(name)]


def test_an_installation_in_order(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOSTENUTO_BROKER_URL", raising=False)
    cli("list")  # makes the database
    told = cli("doctor", "--json")
    data = told.data
    assert told.code == 0
    assert data["safe"] is True
    assert [finding["verdict"] for finding in _findings(data, "database")] == ["ok"]
    assert _findings(data, "sandbox")[0]["text"].startswith(("bwrap", "landlock"))
    assert "sostenuto" in _findings(data, "versions")[0]["text"]
    assert all(finding["hint"] for finding in data["findings"] if finding["verdict"] != "ok")
    assert "ok       database" in cli("doctor").out


def test_a_broker_that_does_not_answer_and_a_world_writable_folder(cli: Cli, folder: Path) -> None:
    cli("list")  # makes the database
    (folder / "sostenuto-data").chmod(0o777)
    told = cli("doctor", "--json")
    assert told.code == 1
    bad = {finding["name"] for finding in told.data["findings"] if finding["verdict"] == "bad"}
    assert bad == {"broker", "data folder"}


def test_a_worker_without_a_sandbox_is_unsafe(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOSTENUTO_BROKER_URL", raising=False)
    cli("list")  # makes the database
    worker = {
        "name": "w", "host": "h", "pid": 1, "queues": ["agent"], "concurrency": 1, "version": "1", "tools": [],
        "sandbox": "none: commands run UNSANDBOXED, with all rights of the worker", "problems": ["MCP server x: gone"],
    }  # fmt: skip
    db = Database(f"sqlite:///{folder}/sostenuto-data/sostenuto.db")
    registry.register_worker(db, worker)
    db.close()
    told = cli("doctor", "--json")
    assert told.code == 1
    assert [finding["verdict"] for finding in _findings(told.data, "worker w")] == ["bad", "warning"]


def test_a_database_with_a_password_is_told_without_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_DATABASE_URL", "postgresql://me:canary-password@127.0.0.1:1/x")
    told = cli("doctor", "--json")
    assert told.code == 1
    assert _findings(told.data, "database")[0]["verdict"] == "bad"
    assert "canary-password" not in told.out + told.err
