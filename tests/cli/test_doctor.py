"""`sostenuto doctor`: an installation in order, and each thing that makes it fail, with what to do."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.installation import Installation
from jobs.listening import listening_addresses
from storage import registry
from storage.engine import Database
from tests.api.conftest import serving
from tests.cli.conftest import Cli
from tests.jobs.conftest import db, installation
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import Answer, HttpFailure, Reply, StrictEndpoint

__all__ = ["db", "installation"]


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


def test_a_worker_that_is_to_leave_is_told(cli: Cli, folder: Path) -> None:
    cli("list")  # makes the database
    worker = {
        "name": "w", "host": "h", "pid": 1, "queues": ["agent"], "concurrency": 1, "version": "1", "tools": [],
        "sandbox": "bwrap",
    }  # fmt: skip
    db = Database(f"sqlite:///{folder}/sostenuto-data/sostenuto.db")
    registry.register_worker(db, worker)
    registry.request_drain(db, ["w"], "me")
    db.close()
    [found] = _findings(cli("doctor", "--json").data, "worker w")
    assert (found["verdict"], found["text"]) == ("warning", "draining: it takes no more jobs")
    assert found["hint"]


def test_files_of_secrets_that_others_can_reach_are_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder above decides as well as the file: tests run below one that others may enter."""
    cli("list")  # makes the database
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        files = {
            "OPENAI_API_KEY_FILE": 0o644,
            "SOSTENUTO_FLOWER_PASSWORD_FILE": 0o666,
            "KEY_OF_ANOTHER_FILE": 0o600,
        }
        for name, mode in files.items():
            (folder / name).write_text("a-long-enough-secret")
            (folder / name).chmod(mode)
            monkeypatch.setenv(name, str(folder / name))
        endpoint = {"other": {"base_url": "https://h/v1", "api_key_env": "KEY_OF_ANOTHER"}}
        monkeypatch.setenv("SOSTENUTO_ENDPOINTS", json.dumps(endpoint))
        found = _findings(cli("doctor", "--json").data, "secret files")
        assert [(finding["verdict"], "may " + finding["text"].split(" may ")[1]) for finding in found] == [
            ("bad", "may write the file of SOSTENUTO_FLOWER_PASSWORD_FILE"),
            ("warning", "may read the file of OPENAI_API_KEY_FILE"),
        ]
        folder.chmod(0o700)
        assert _findings(cli("doctor", "--json").data, "secret files") == []


def test_a_flower_is_looked_at_as_a_stranger_would(
    cli: Cli, worker_process: CommandFactory, free_port: int
) -> None:
    cli("list")  # makes the database
    flower = worker_process.run("flower", "--port", str(free_port))
    flower.wait_for_log("listening on")
    data = cli("doctor", "--json", "--flower-port", str(free_port)).data
    assert {finding["name"]: finding["verdict"] for finding in _findings(data, "flower")} == {
        "flower auth": "ok",
        "flower bind": "ok",
    }
    told = cli("doctor", "--json", "--web-port", str(free_port)).data
    assert "another program" in _findings(told, "web")[0]["text"]


def test_a_database_with_a_password_is_told_without_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_DATABASE_URL", "postgresql://me:canary-password@127.0.0.1:1/x")
    told = cli("doctor", "--json")
    assert told.code == 1
    assert _findings(told.data, "database")[0]["verdict"] == "bad"
    assert "canary-password" not in told.out + told.err


def test_a_web_server_in_order(cli: Cli, installation: Installation) -> None:
    cli("list")  # makes the database
    for url in serving(installation):
        data = cli("doctor", "--json", "--web-port", url.rpartition(":")[2]).data
        assert {finding["name"]: finding["verdict"] for finding in _findings(data, "web")} == {
            "web auth": "ok",
            "web bind": "ok",
        }


class _Open(BaseHTTPRequestHandler):
    """A Sostenuto whose gate somebody took away."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing: it would go into the test's output."""


def test_a_server_that_lets_strangers_in_is_unsafe(cli: Cli) -> None:
    cli("list")  # makes the database
    with ThreadingHTTPServer(("127.0.0.1", 0), _Open) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = cli("doctor", "--json", "--web-port", str(server.server_port))
        server.shutdown()
    [auth, bind] = _findings(told.data, "web")
    assert told.code == 1
    assert (auth["verdict"], bind["verdict"]) == ("bad", "ok")
    assert "/api/jobs, /api/audit, /, a foreign Host header" in auth["text"]


def test_a_server_that_other_machines_reach_is_unsafe(
    cli: Cli, worker_process: CommandFactory, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("list")  # makes the database
    everywhere = "0.0.0.0"  # noqa: S104  what this is about
    web = worker_process.run("web", "--host", everywhere, "--allow-remote", "--port", str(free_port))
    web.wait_for_log("listening on")
    told = cli("doctor", "--json", "--web-port", str(free_port))
    [auth, bind] = _findings(told.data, "web")
    assert told.code == 1
    assert (auth["verdict"], bind["verdict"]) == ("ok", "bad")
    assert everywhere in bind["text"]
    assert "proxy with TLS" in bind["hint"]


def test_where_something_listens_is_read_from_the_kernel() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as listener:
            listener.bind((address, 0))
            assert listening_addresses(listener.getsockname()[1]) == []
            listener.listen()
            assert listening_addresses(listener.getsockname()[1]) == [address]


@pytest.mark.parametrize(
    ("answer", "verdict", "told"),
    [
        (Reply(text="OK"), "ok", "answers as"),
        (HttpFailure(401, {"error": {"message": "no such key"}}), "bad", "no such key"),
        (HttpFailure(503, b"away"), "bad", "503"),
    ],
)
def test_the_model_is_asked_where_one_wants_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: Answer, verdict: str, told: str
) -> None:
    cli("list")  # makes the database
    monkeypatch.setenv("SOSTENUTO_MODEL", "a-model")
    with StrictEndpoint(lambda _: answer) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        [unasked] = _findings(cli("doctor", "--json").data, "model")
        assert (unasked["verdict"], len(endpoint.requests)) == ("ok", 0)
        [asked] = _findings(cli("doctor", "--json", "--ask-model").data, "model")
        assert asked["verdict"] == verdict
        assert told in asked["text"]
        assert len(endpoint.requests) == 1
        assert asked["hint"] or verdict == "ok"


def test_a_password_too_short_to_be_masked_is_warned_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2")
    [finding] = _findings(cli("doctor", "--json").data, "secrets")
    assert finding["verdict"] == "warning"
    assert "hunter2" not in str(finding)
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2hunter2")
    assert _findings(cli("doctor", "--json").data, "secrets") == []
