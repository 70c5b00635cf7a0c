"""The `mcp:` block: what it takes, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ConfigurationError
from jobs.settings import Settings
from jobs.settings_sources import load_settings


def _loaded(folder: Path, block: str) -> Settings:
    (folder / "sostenuto.yaml").write_text(block)
    return load_settings({}, folder)


def test_a_file_names_servers(tmp_path: Path) -> None:
    settings = _loaded(
        tmp_path,
        "mcp:\n  docs:\n    url: https://example.org/mcp\n    headers: {Authorization: 'Bearer ${DOCS}'}\n"
        "  files:\n    command: file-server\n    args: [--quiet]\n    env: {LANG: C}\n    read: [/opt/files]\n",
    )
    assert sorted(settings.mcp) == ["docs", "files"]
    assert settings.mcp["docs"].variables() == {"DOCS"}
    assert settings.mcp["files"].args == ("--quiet",)


def test_the_environment_names_servers_as_json(tmp_path: Path) -> None:
    settings = load_settings({"SOSTENUTO_MCP": '{"docs": {"url": "http://127.0.0.1/mcp"}}'}, tmp_path)
    assert settings.mcp["docs"].url == "http://127.0.0.1/mcp"
    with pytest.raises(ConfigurationError, match="SOSTENUTO_MCP"):
        load_settings({"SOSTENUTO_MCP": "docs"}, tmp_path)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": "http://h/"}, "either a command or a url"),
        ({"command": "./x"}, "a program's name or an absolute path"),
        ({"command": "x", "headers": {"A": "b"}}, "headers belong to"),
        ({"command": "x", "env": {"a b": "c"}}, "no name of a variable"),
        ({"command": "x", "read": ["relative"]}, "not an absolute path"),
        ({"command": "x", "read": ["/"]}, "not an absolute path of a folder to be shown"),
        ({"command": "x", "read": ["/proc/1"]}, "not an absolute path of a folder to be shown"),
        ({"command": "x", "read": ["/opt/../root"]}, "not an absolute path of a folder to be shown"),
        ({"url": "ftp://h/"}, "a URL with a host"),
        ({"url": "http://u:p@h/"}, "credentials belong into headers"),
        ({"url": "http://h/", "args": ["x"]}, "belong to a server with a command"),
        ({"url": "http://h/", "headers": {"A B": "c"}}, "no name of a header"),
        ({"url": "http://h/", "headers": {"A": "b\r\nC: d"}}, ""),
        ({"url": "http://h/", "comand": "x"}, "comand"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, server: dict[str, Any], told: str) -> None:
    import json

    with pytest.raises(ConfigurationError) as refused:
        _loaded(tmp_path, f"mcp:\n  docs: {json.dumps(server)}\n")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "A", "a__b", "a/b", "-a", "a" * 33, "a."])
def test_names_that_no_tool_could_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="server's name"):
        _loaded(tmp_path, f"mcp:\n  {name!r}: {{url: 'http://h/'}}\n")


def test_what_a_server_takes_from_the_environment_is_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "token-of-the-docs-server")
    server: Any = {"docs": {"url": "http://h/", "headers": {"A": "Bearer ${DOCS_TOKEN}"}}}
    assert "token-of-the-docs-server" in Settings(data_dir=tmp_path, mcp=server).secrets()
