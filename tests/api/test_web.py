"""`sostenuto web` as a process: where it listens, what it prints, how it stops; streams across its restart."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Cli, cli, folder
from tests.servers.workers import CommandFactory, CommandProcess
from tests.waiting import wait_until

__all__ = ["cli", "folder"]

READY = "listening on "
EVERYWHERE = "0.0.0.0"  # noqa: S104  that it is refused, or confirmed, is what is tested


@pytest.fixture
def environment(data_dir: Path) -> dict[str, str]:
    return {
        "SOSTENUTO_DATA_DIR": str(data_dir),
        "SOSTENUTO_BROKER_URL": f"redis+socket://{data_dir}/no-broker",
    }


@pytest.fixture
def token(cli: Cli, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return cli("tokens", "create").out.strip()


def _url(command: CommandProcess) -> str:
    command.wait_for_log(READY)
    wait_until(lambda: command.log().partition(READY)[2].endswith("\n"), reason="the whole line")
    return command.log().partition(READY)[2].strip()


def _client(url: str, token: str) -> httpx2.Client:
    return httpx2.Client(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False
    )


def test_it_serves_on_loopback_and_stops_in_order(
    worker_process: CommandFactory, environment: dict[str, str], token: str
) -> None:
    command = worker_process.run("web", "--port", "0", "--name", "Jobs.Example", env=environment)
    url = _url(command)
    assert url.startswith("http://127.0.0.1:")
    with _client(url, token) as client:
        answer = client.post("/api/jobs", json={"instruction": "x"}, headers={"Host": "jobs.example"})
        assert answer.status_code == 201
        assert "server" not in answer.headers
        assert client.get("/healthz", headers={"Host": "other.example"}).status_code == 421
        with client.stream("GET", f"{answer.json()['links']['self']}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(("id:", "event:"))
            command.term()
            # Cut, not ended: its client knows that there is more, and asks the next server for it.
            with pytest.raises(httpx2.RemoteProtocolError):
                list(lines)
    assert command.wait() in (0, -signal.SIGTERM)
    assert token not in command.log()


def _read(lines: Iterator[str], events: int) -> list[tuple[str, int]]:
    """(place, seq) of the next events; fewer where the stream ends."""
    found: list[tuple[str, int]] = []
    place = ""
    while len(found) < events:
        line = next(lines)
        if line.startswith("id: "):
            place = line[4:]
        elif line.startswith("data: "):
            found.append((place, json.loads(line[6:])["seq"]))
    return found


def test_a_stream_goes_on_after_the_server_was_killed(
    worker_process: CommandFactory, environment: dict[str, str], token: str
) -> None:
    first = worker_process.run("web", "--port", "0", env=environment)
    with _client(_url(first), token) as client:
        here = client.post("/api/jobs", json={"instruction": "x"}).json()["links"]["self"]
        client.post(f"{here}/pause")
        with client.stream("GET", f"{here}/events") as stream:
            told = _read(stream.iter_lines(), 2)
            first.kill()
    second = worker_process.run("web", "--port", "0", env=environment)
    with _client(_url(second), token) as client:
        client.post(f"{here}/resume")
        client.post(f"{here}/cancel")
        with client.stream("GET", f"{here}/events", headers={"Last-Event-ID": told[-1][0]}) as stream:
            lines = stream.iter_lines()
            told += _read(lines, 2)
            assert "event: end" in list(lines)
    assert [seq for _, seq in told] == [1, 2, 3, 4]


@pytest.mark.parametrize("address", [EVERYWHERE, "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_reach_is_refused(cli: Cli, address: str) -> None:
    outcome = cli("web", "--host", address, "--port", "0")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {address} can be reached from other machines")
    assert "--allow-remote" in outcome.err


def test_another_address_after_confirmation(
    worker_process: CommandFactory, environment: dict[str, str], token: str
) -> None:
    command = worker_process.run(
        "web", "--host", EVERYWHERE, "--allow-remote", "--port", "0", env=environment
    )
    url = _url(command).replace(EVERYWHERE, "127.0.0.1")
    with _client(url, token) as client:
        assert client.get("/readyz").json()["database"] == "ok"


def test_a_port_that_is_taken_is_one_line(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = cli("web", "--port", str(taken.getsockname()[1]))
    assert outcome.code == 2
    assert "address already in use" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["web"],
        ["audit"],
        ["tokens"],
        *(["tokens", name] for name in ("create", "list", "revoke", "login-code")),
    ],
)
def test_the_commands_have_help_and_are_documented(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = cli(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= 80
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`{' '.join(command)}" in text


def test_the_help_of_everything_starts_without_the_web_framework() -> None:
    import subprocess
    import sys

    code = "import sys; from jobs.cli import run; run(['--help']); print([n for n in ('fastapi', 'uvicorn', 'starlette') if n in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
