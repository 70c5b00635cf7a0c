"""The embedded broker: a private Valkey on a Unix socket in the data folder; nothing to install, no port.

    data_dir/run/broker.lock     held while somebody looks for, starts or stops the server
    data_dir/run/broker.users    held shared by each program that uses it; the last one to leave stops the server
    data_dir/run/valkey.pid      whom to end when it no longer answers
    data_dir/run/valkey.sock     the socket, or in a short private folder that `socket-folder` names

The server keeps nothing on disk: it carries wake-ups, which may be lost, because the database is the truth.
Programs that die without a word leave it running; the next one finds and uses it. Where no Valkey binary is to
be had, messages are files (see `jobs.file_broker`) and nothing needs starting.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from jobs import embedded_server as server
from jobs.embedded_server import EmbeddedBrokerError
from jobs.file_broker import clean_message_files, file_broker_url

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = 30.0
ANSWER_TIMEOUT = 5.0  # a server silent for so long is frozen, not busy
KEEPER_INTERVAL = 0.5
JANITOR_INTERVAL = 10.0


@dataclass(slots=True)
class BrokerHandle:
    """One program's use of the embedded broker, from `ensure_broker` to `stop_broker`."""

    url: str
    started: bool  # True when this call started the server
    pid: int | None  # None: messages are files, there is no server
    _run: Path
    _use: IO[bytes] | None = None
    _process: subprocess.Popen[bytes] | None = None  # the server, where it is our child

    def release(self) -> None:
        """End the use and leave the server running. Calling it again does nothing."""
        if self._use is not None:
            self._use.close()
            self._use = None
        if self._process is not None:
            self._process.poll()  # reaps it when it has died


def embedded_broker_url(data_dir: Path) -> str:
    """Where the embedded broker is, or would be; starts nothing. For programs that only send."""
    if server.binary() is None:
        return file_broker_url(data_dir)
    run = _run_folder(data_dir)
    path = server.known_socket(run)
    if path is None:
        with _locked(run):
            path = server.settle_socket(run)
    return _socket_url(path)


def ensure_broker(data_dir: Path) -> BrokerHandle:
    """Find the data folder's broker or start it; returns when it answers.

    Any number of programs may call it at once: one starts the server, the others find it. A server that a killed
    program left behind is used; one that is frozen is ended and replaced (its undelivered wake-ups are lost).
    Raises EmbeddedBrokerError when it does not come up. The server may still die later: see BrokerKeeper.
    """
    run = _run_folder(data_dir)
    binary = server.binary()
    if binary is None:
        return BrokerHandle(file_broker_url(data_dir), started=False, pid=None, _run=run)
    with _locked(run), contextlib.ExitStack() as on_failure:
        path = server.settle_socket(run)
        use = on_failure.enter_context((run / "broker.users").open("wb"))
        fcntl.flock(use, fcntl.LOCK_SH | fcntl.LOCK_NB)  # exclusive only ever for a moment inside broker.lock
        pid = server.answering_pid(path, ANSWER_TIMEOUT)
        process = None
        if pid is None:
            server.clear_left_over(run, path)
            process = server.start(binary, run, path)
            pid = process.pid
        on_failure.pop_all()
    return BrokerHandle(_socket_url(path), process is not None, pid, run, use, process)


def stop_broker(handle: BrokerHandle) -> bool:
    """End this program's use, and the server with it unless another program uses it; True when it was ended.

    Calling it again does nothing. Raises EmbeddedBrokerError when somebody holds the lock for too long.
    """
    if handle._use is None:
        return False
    with _locked(handle._run):
        handle.release()
        with (handle._run / "broker.users").open("wb") as use:
            try:
                fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            ended = server.stop(handle._run)
    handle.release()
    return ended


class BrokerKeeper:
    """A thread that starts the embedded broker again within about a second of its death.

    Every worker process has one; the lock lets one of them restart it and the others find it. `start` raises
    EmbeddedBrokerError when there is no broker to begin with; later failures are logged and tried again.
    """

    def __init__(self, data_dir: Path, *, interval: float = KEEPER_INTERVAL) -> None:
        self._data_dir = data_dir
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="broker-keeper", daemon=True)
        self._handle: BrokerHandle | None = None

    def start(self) -> str:
        """Ensure the broker and begin to watch it; returns its URL."""
        self._handle = ensure_broker(self._data_dir)
        self._thread.start()
        return self._handle.url

    def stop(self) -> None:
        """End the watch and this program's use of the broker; the last user's end stops the server."""
        self._stop.set()
        if self._handle is not None:
            self._thread.join()
            stop_broker(self._handle)

    def _keep(self) -> None:
        assert self._handle is not None
        if self._handle.pid is None:
            while not self._stop.wait(JANITOR_INTERVAL):
                clean_message_files(self._handle.url)
            return
        while not self._stop.wait(self._interval):
            path = server.known_socket(self._handle._run)
            if path is None or server.answering_pid(path, timeout=1.0) is None:
                self._revive(self._handle)

    def _revive(self, old: BrokerHandle) -> None:
        try:
            revived = ensure_broker(self._data_dir)
        except (EmbeddedBrokerError, OSError) as error:
            logger.warning("the embedded broker is down and does not start: %s", error)
            return
        old.release()
        self._handle = revived
        if revived.started:
            logger.warning("the embedded broker had died and was started again (pid %s)", revived.pid)


def _run_folder(data_dir: Path) -> Path:
    """Absolute, existing, and closed to other users: the socket's own mode is set only after it is bound."""
    run = data_dir.absolute() / "run"
    try:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        run.chmod(0o700)
    except OSError as error:
        raise EmbeddedBrokerError(
            f"the folder {run} cannot be used: {error.strerror}",
            hint="the data folder must be writable and belong to the user who runs this program",
        ) from error
    return run


def _socket_url(path: Path) -> str:
    return f"redis+socket://{quote(str(path))}"


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Hold the starters' lock. The kernel frees it when its holder dies, however it dies."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    with (run / "broker.lock").open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedBrokerError(
                        f"another program has held {run / 'broker.lock'} for {LOCK_TIMEOUT:g} s",
                        hint="end the program that hangs while it starts or stops the broker",
                    ) from None
                time.sleep(0.01)
        yield
