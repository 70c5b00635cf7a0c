"""Servers behind a URL: one connection for all jobs, the operator's headers, bounded answers, no foreign redirects."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mcp.conftest import SERVERS, Caller, new_workspace
from tests.mcp.servers.over_http import http_server
from tests.servers.session import ServerSession
from tests.waiting import wait_until
from worker.mcp.http import LONGEST_BODY


def test_headers_come_from_the_environment_and_the_connection_is_shared(
    started: Callable[..., Caller], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "token-of-the-docs-server")
    with http_server() as server:
        settings = {"url": server.url, "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}
        caller = started(None, {"docs": settings})  # it needs no sandbox
        assert caller.servers.catalogue.names() == ["mcp__docs__echo"]
        other = Caller(caller.servers, new_workspace(tmp_path / "other"))
        assert caller("echo", server="docs", text="a").content == "a"
        caller.end()
        assert other("echo", server="docs", text="b").content == "b"
        assert {headers["authorization"] for headers in server.headers} == {"Bearer token-of-the-docs-server"}
        assert server.methods.count("initialize") == 2  # what it offers, then the connection of all jobs


def test_an_endless_answer_is_cut_off(started: Callable[..., Caller]) -> None:
    with http_server() as server:
        caller = started(None, {"docs": {"url": server.url, "call_timeout": 30}})
        server.body_of_call = b"x" * (LONGEST_BODY + 1)
        assert caller("echo", server="docs", text="?").is_error
        server.body_of_call = b"no json"
        assert caller("echo", server="docs", text="?").is_error
        server.body_of_call = None
        assert caller("echo", server="docs", text="well again").content == "well again"


def test_a_redirect_to_another_place_is_not_followed(started: Callable[..., Caller]) -> None:
    with http_server() as inner, http_server() as server:
        server.redirect = inner.url
        caller = started(None, {"docs": {"url": server.url}})
        assert caller.servers.names == []
        assert "not followed" in caller.servers.problems[0]
        assert inner.methods == []


def test_a_server_that_comes_later_is_found(started: Callable[..., Caller], free_port: int) -> None:
    caller = started(None, {"docs": {"url": f"http://127.0.0.1:{free_port}/mcp", "start_timeout": 5}})
    assert len(caller.servers.problems) == 1
    assert caller("echo", server="docs", text="?").is_error
    with http_server(free_port):
        assert caller.servers.ask_missing()
        assert caller.servers.names == ["docs"]
        assert caller.servers.problems == []


def test_a_server_made_with_the_official_package(
    started: Callable[..., Caller], free_port: int, server_session: ServerSession
) -> None:
    program = [sys.executable, str(SERVERS / "official.py"), str(free_port)]
    with subprocess.Popen(program, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{free_port}/mcp"
            caller = started(None, {"official": {"url": url}})
            wait_until(lambda: caller.servers.names or caller.servers.ask_missing())
            assert caller("add", server="official", a=2, b=3).content == "5"
        finally:
            server.kill()
