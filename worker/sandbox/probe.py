"""An attack from inside a sandbox, to know what it holds instead of hoping."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.cancel import CancelToken
from worker.sandbox.base import Ending, Sandbox, SandboxUnavailable
from worker.sandbox.toolchain import python_program

_TIMEOUT = 20.0

# Runs inside, with the targets as its only argument; prints which attacks worked. Each of them must do no harm where it
# does work: files are opened and not written, nothing is mounted, the worker is not stopped.
_SCRIPT = r"""
import ctypes, json, os, socket, sys
target = json.loads(sys.argv[1])
worked = []
def attack(name, action):
    try:
        if action():
            worked.append(name)
    except BaseException:
        pass
def read(path):
    with open(path, "rb") as file:
        return target["secret"].encode() in file.read()
def write(path, flags):
    os.close(os.open(path, flags, 0o600))
    return True
def connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        client.send(b"x")
        return kind == socket.SOCK_STREAM
def trace():  # PTRACE_SEIZE, which does not stop the traced process and ends with this one
    return ctypes.CDLL(None).ptrace(0x4206, target["pid"], 0, 0) == 0
def capabilities():
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    return ctypes.CDLL(None).capget(header, sets) != 0 or any(sets)
attack("read files outside its workspace", lambda: read(target["file"]))
attack("list folders outside its workspace", lambda: os.listdir(target["folder"]) or True)
attack("create files outside its workspace", lambda: write(target["folder"] + "/new", os.O_WRONLY | os.O_CREAT))
attack("write files outside its workspace", lambda: write(target["file"], os.O_WRONLY))
attack("truncate files outside its workspace", lambda: os.truncate(target["file"], 0) is None)
attack("write into the toolchain", lambda: write(os.path.dirname(os.__file__) + "/os.py", os.O_WRONLY))
attack("read the worker's environment", lambda: open(f"/proc/{target['pid']}/environ", "rb").read() != b"")
attack("read the worker's memory", lambda: bool(open(f"/proc/{target['pid']}/mem", "rb")))
attack("trace the worker", trace)
attack("signal the worker", lambda: os.kill(target["pid"], 0) is None)
attack("connect by TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", target["tcp"])))
attack("send by UDP", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", target["udp"])))
attack("connect to a Unix socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, target["unix"]))
attack("connect to an abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + target["abstract"]))
attack("keep capabilities", capabilities)
attack("make a user namespace", lambda: ctypes.CDLL(None).unshare(0x10000000) == 0)
print(json.dumps(worked))
"""


@dataclass(frozen=True, slots=True)
class _Targets:
    """What is outside: a secret in a file, a process, listening sockets."""

    secret: str
    folder: str
    file: str
    pid: int
    tcp: int
    udp: int
    unix: str
    abstract: str


LONGEST_PLACE = 60  # bytes of the temporary folder's path


def attack(sandbox: Sandbox) -> list[str]:
    """What a command in the sandbox could do that it must not: nothing, if it holds.

    Raises SandboxUnavailable when the attacker could not even run, which proves nothing.
    """
    try:
        return _attack(sandbox)
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SandboxUnavailable(f"the probe of level {sandbox.level} failed: {told}") from error


def _attack(sandbox: Sandbox) -> list[str]:
    # A Unix socket's path has at most about 107 bytes: a long TMPDIR cannot hold one.
    place = None if len(os.fsencode(tempfile.gettempdir())) <= LONGEST_PLACE else "/tmp"  # noqa: S108 - made private
    with (
        tempfile.TemporaryDirectory(prefix="sostenuto-probe-", dir=place) as folder,
        contextlib.ExitStack() as sockets,
    ):
        workspace = Path(folder) / "workspace"
        (workspace / "logs").mkdir(parents=True)
        targets, received = _set_up(Path(folder) / "outside", sockets)
        output = bytearray()
        outcome = sandbox.run(
            [python_program(), "-I", "-S", "-c", _SCRIPT, json.dumps(asdict(targets))],
            workspace=workspace,
            timeout=_TIMEOUT,
            cancel=CancelToken(),
            on_output=output.extend,
        )
        if outcome.ending is not Ending.EXITED or outcome.exit_code != 0:
            told = output.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise SandboxUnavailable(f"the probe of level {sandbox.level} failed: {told or outcome.ending}")
        worked = [str(name) for name in json.loads(output)]
        return worked + (["send by UDP"] if _has_datagram(received) else [])


def _set_up(outside: Path, sockets: contextlib.ExitStack) -> tuple[_Targets, socket.socket]:
    secret = secrets.token_hex(16)
    outside.mkdir()
    (outside / "secret").write_text(secret, "utf-8")
    abstract = f"sostenuto-probe-{secrets.token_hex(8)}"
    tcp, udp = _bound(socket.AF_INET, socket.SOCK_STREAM), _bound(socket.AF_INET, socket.SOCK_DGRAM)
    unix = _bound(socket.AF_UNIX, socket.SOCK_STREAM, str(outside / "socket"))
    hidden = _bound(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract)
    for listener in (tcp, udp, unix, hidden):
        sockets.callback(listener.close)
    targets = _Targets(
        secret,
        str(outside),
        str(outside / "secret"),
        os.getpid(),
        tcp.getsockname()[1],
        udp.getsockname()[1],
        str(outside / "socket"),
        abstract,
    )
    return targets, udp


def _bound(
    family: socket.AddressFamily, kind: socket.SocketKind, address: str | tuple[str, int] = ("127.0.0.1", 0)
) -> socket.socket:
    listener = socket.socket(family, kind)
    try:
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _has_datagram(receiver: socket.socket) -> bool:
    receiver.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return bool(receiver.recv(16))
    return False
