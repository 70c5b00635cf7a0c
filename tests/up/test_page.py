"""`sostenuto up` and its web server: started, started again, ended with it; the login code, for eyes alone."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx2

from jobs.installation import Installation
from jobs.supervisor import WebSpec
from tests.servers.session import ServerSession
from tests.up.conftest import UpFactory, alive, family, submitted, wait_for_end, wait_for_state

CODE = re.compile(r"\b(?:[0-9A-Z]{5}-){3}[0-9A-Z]{5}\b")
COMMAND = [str(Path(sys.executable).with_name("sostenuto"))]


def _url(log: str) -> str:
    found = re.search(r"page: (http://127\.0\.0\.1:\d+)", log)
    assert found, log
    return found[1]


def test_the_web_server_is_a_part_of_it_and_is_started_again(
    up: UpFactory, installation: Installation
) -> None:
    command = up.started("--workers", "1", "--port", "0")
    everything = family(command)
    url = _url(command.log())
    health = httpx2.get(f"{url}/healthz", trust_env=False, timeout=60)
    assert health.json() == {"status": "ok"}
    first = next(pid for pid in up.workers() if b"jobs.cli" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(first, signal.SIGKILL)
    command.wait_for_log("is ready")
    assert f"the web server (pid {first}) was killed by SIGKILL" in command.log()
    again = httpx2.get(f"{url}/healthz", trust_env=False, timeout=60)
    assert again.status_code == 200
    wait_for_state(installation, submitted(installation), "succeeded")
    command.term()
    assert command.wait() == 0
    wait_for_end([*everything, *family(command)])


def test_the_web_server_ends_by_itself_when_up_is_killed(up: UpFactory) -> None:
    command = up.started("--workers", "1", "--port", "0")
    everything = family(command)
    command.kill_only()
    wait_for_end(everything)


def test_a_port_that_is_taken_is_told_and_nothing_is_left(up: UpFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = up.start("--workers", "1", "--port", str(taken.getsockname()[1]))
        assert command.wait() == 2
    assert "address already in use" in command.log()
    assert "choose another --port" in command.log()
    assert not any(alive(pid) for pid in family(command) if pid != command.pid)


def test_in_a_pipe_no_code_is_printed(up: UpFactory) -> None:
    command = up.start("--workers", "1", "--port", "0", "--json")
    command.wait_for_log('"up"')
    command.term()
    command.wait()
    (told,) = [event for event in map(json.loads, command.log().splitlines()) if event["event"] == "up"]
    assert told["url"].startswith("http://127.0.0.1:")
    logs = "".join(file.read_text() for file in (up.data_dir / "logs").iterdir())
    assert CODE.search(command.log() + logs) is None


def test_on_a_terminal_a_code_is_printed_that_lets_a_browser_in(
    server_session: ServerSession, data_dir: Path
) -> None:
    environment = {**os.environ, "SOSTENUTO_DATA_DIR": str(data_dir), "COLUMNS": "200"}
    main, terminal = pty.openpty()
    arguments = [*COMMAND, "up", "--workers", "1", "--port", "0"]
    process = subprocess.Popen(
        arguments, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=data_dir
    )
    os.close(terminal)
    try:
        shown = _read_until(main, rb"list\b")
        code = CODE.search(shown)
        assert code, shown
        address = re.search(r"(http://127\.0\.0\.1:\d+)/login#" + code[0], shown)
        assert address, shown
        with closing(httpx2.Client(base_url=address[1], trust_env=False, timeout=60)) as browser:
            assert browser.post("/login", data={"code": code[0]}).status_code == 303
            assert browser.get("/api/jobs").status_code == 200
    finally:
        process.terminate()
        process.wait(60)
        os.close(main)
    stored = [file for file in data_dir.rglob("*") if file.is_file()]
    assert not any(code[0].encode() in file.read_bytes() for file in stored)


def _read_until(terminal: int, pattern: bytes) -> str:
    """What the terminal shows up to the pattern; AssertionError after a minute."""
    shown, deadline = b"", time.monotonic() + 60
    while not re.search(pattern, shown):
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    command = WebSpec("web", tmp_path / "log", port=8787).command()
    assert "--host" not in command
    assert "--allow-remote" not in command
