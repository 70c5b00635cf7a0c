"""Attacks on what is near: the worker that started the command, the commands of other jobs, the machine's listeners.

The targets are real and listen: an attack counts as held back when nothing arrived, whatever the attacker was told.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox.conftest import Shell, make_shell
from tests.waiting import wait_until
from worker.cancel import CancelToken
from worker.sandbox.base import Ending
from worker.sandbox.toolchain import python_program

MPTCP = 262


def attack(shell: Shell, script: str, *arguments: object) -> str:
    """What a Python script prints that runs in the sandbox."""
    (shell.workspace / "attack.py").write_text(script, "utf-8")
    quoted = " ".join(f"'{argument}'" for argument in arguments)
    return shell.says(f"{python_program()} -I attack.py {quoted} 2>&1")


@dataclass(frozen=True)
class Listener:
    """A socket of the host's, and how it is reached."""

    name: str
    family: int
    kind: int
    address: list[object] | str
    socket: socket.socket

    def heard(self) -> bool:
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if self.kind == socket.SOCK_STREAM:
                self.socket.accept()[0].close()
            else:
                self.socket.recv(16)
            return True
        return False


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[list[Listener]]:
    """One of each kind, on the loopback addresses, in the file system and in the abstract namespace."""
    abstract = f"\0sostenuto-test-{secrets.token_hex(8)}"
    wanted: list[tuple[str, int, int, int, object]] = [
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, 0, ("127.0.0.1", 0)),
        ("mptcp", socket.AF_INET, socket.SOCK_STREAM, MPTCP, ("127.0.0.1", 0)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, 0, ("127.0.0.1", 0)),
        ("tcp 6", socket.AF_INET6, socket.SOCK_STREAM, 0, ("::1", 0)),
        ("udp 6", socket.AF_INET6, socket.SOCK_DGRAM, 0, ("::1", 0)),
        ("unix", socket.AF_UNIX, socket.SOCK_STREAM, 0, str(tmp_path / "s")),
        ("unix datagram", socket.AF_UNIX, socket.SOCK_DGRAM, 0, str(tmp_path / "d")),
        ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, 0, abstract),
        ("abstract datagram", socket.AF_UNIX, socket.SOCK_DGRAM, 0, abstract + "d"),
    ]
    with contextlib.ExitStack() as opened:
        found = []
        for name, family, kind, protocol, address in wanted:
            try:
                listener = opened.enter_context(socket.socket(family, kind, protocol))
                listener.bind(address)  # type: ignore[arg-type]  # each family its own kind of address
            except OSError:
                assert name in ("mptcp", "tcp 6", "udp 6"), f"no {name} on this machine"
                continue
            if kind == socket.SOCK_STREAM:
                listener.listen()
            bound = listener.getsockname()
            reached = (
                bound.decode()
                if isinstance(bound, bytes)
                else bound
                if isinstance(bound, str)
                else list(bound)
            )
            found.append(Listener(name, family, kind, reached, listener))
        yield found


_CONNECT = """
import json, socket, sys
for family, kind, address in json.loads(sys.argv[1]):
    address = tuple(address) if isinstance(address, list) else address
    for protocol in (0, 262) if kind == socket.SOCK_STREAM and family != socket.AF_UNIX else (0,):
        for way in ("connect", "sendto", "sendmsg"):
            try:
                with socket.socket(family, kind, protocol) as s:
                    s.settimeout(2)
                    if way == "connect":
                        s.connect(address)
                        s.send(b"x")
                    elif way == "sendto":
                        s.sendto(b"x", 0x20000000 if kind == socket.SOCK_STREAM else 0, address)  # MSG_FASTOPEN
                    else:
                        s.sendmsg([b"x"], [], 0x20000000 if kind == socket.SOCK_STREAM else 0, address)
                    print("reached", family, kind, protocol, way, address)
            except OSError:
                pass
"""


def test_no_listener_of_the_machine_hears_anything(shell: Shell, listeners: list[Listener]) -> None:
    """TCP, multipath TCP, UDP, both families, fast open, Unix sockets by path and abstract ones."""
    targets = json.dumps([[each.family, each.kind, each.address] for each in listeners])
    attack(shell, _CONNECT, targets)
    assert [each.name for each in listeners if each.heard()] == []


def test_the_listeners_do_hear_who_is_not_confined(tmp_path: Path, listeners: list[Listener]) -> None:
    """The attack works where nothing holds it back: otherwise the test above would show nothing."""
    targets = json.dumps([[each.family, each.kind, each.address] for each in listeners])
    subprocess.run([sys.executable, "-I", "-c", _CONNECT, targets], check=True, capture_output=True)
    assert [each.name for each in listeners if not each.heard()] == []


_PARENT = """
import os
parent = os.getppid()
seen = []
for pid in {*range(1, 50), parent, *map(int, __import__("sys").argv[1:])}:
    for name in ("environ", "cmdline", "maps", "mem", "root", "cwd", "exe", "fd", "task", "status"):
        path = f"/proc/{pid}/{name}"
        try:
            data = os.listdir(path) if name in ("fd", "root", "cwd", "task") else open(path, "rb").read(4096)
        except OSError:
            continue
        seen.append(str(data))
print("".join(seen))
"""


def test_a_child_reads_nothing_of_its_parents(shell: Shell, tmp_path: Path) -> None:
    """A child of the same user reads its parent's environment by default; so the worker here has a secret in its own,
    and a file beside the workspace."""
    (tmp_path / "beside-canary").touch()
    (shell.workspace / "attack.py").write_text(_PARENT, "utf-8")
    script = (
        "import os, sys; from pathlib import Path; from tests.sandbox.conftest import LEVELS;"
        "from worker.sandbox.base import Caps; from worker.cancel import CancelToken;"
        "LEVELS[sys.argv[1]](Caps()).run(['/bin/bash', '-c', f'{sys.argv[3]} -I attack.py {os.getpid()} {os.getppid()}'],"
        "workspace=Path(sys.argv[2]), timeout=60, cancel=CancelToken(), on_output=sys.stdout.buffer.write)"
    )
    level, env = str(shell.sandbox.level), os.environ | {"OPENAI_API_KEY": "canary-environment"}
    command = [sys.executable, "-c", script, level, str(shell.workspace), python_program(), "canary-argument"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "canary" not in ran.stdout
    assert "Traceback" not in ran.stdout


_NEIGHBOUR = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
reached = []
for pid in map(int, sys.argv[1:]):
    for name in ("environ", "cmdline", "cwd", "root", "fd"):
        try:
            path = f"/proc/{pid}/{name}"
            data = str(os.listdir(path)) if name in ("cwd", "root", "fd") else open(path).read()
            if "canary" in data:
                reached.append(f"{name} of {pid}")
        except (OSError, UnicodeError):
            pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        reached.append(f"ptrace of {pid}")
    if libc.syscall(310, pid, None, 0, None, 0, 0) == 0:
        reached.append(f"process_vm_readv of {pid}")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            continue
        if pid not in (os.getpid(), os.getppid(), 1, 2, 3):
            reached.append(f"signal {number} to {pid}")
print(*reached, sep="\\n")
"""


def test_commands_of_two_jobs_do_not_reach_each_other(shell: Shell, tmp_path: Path) -> None:
    level = str(shell.sandbox.level)
    victim = make_shell(level, tmp_path / "other")
    (victim.workspace / "input/canary").touch()
    mark = f"86400.{os.getpid()}"
    cancel = CancelToken()
    ended: list[Ending] = []

    def run() -> None:
        command = ["/bin/bash", "-c", f"export SECRET=canary; echo up; sleep {mark}"]
        ended.append(
            victim.sandbox.run(
                command,
                workspace=victim.workspace,
                timeout=100,
                cancel=cancel,
                on_output=victim.printed.extend,
            ).ending
        )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: victim.printed, 30, "the other job's command runs")
        pids = wait_until(lambda: _with_arguments(mark), 30, "its sleep is seen")
        assert attack(shell, _NEIGHBOUR, *pids) == ""
        look = f"ls {victim.workspace}/input /tmp /dev/shm; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
        assert "canary" not in shell.says(look)
        assert _with_arguments(mark) == pids
        assert ended == []
    finally:
        cancel.cancel("cancel")
        thread.join(30)
    assert ended == [Ending.CANCELLED]


def _with_arguments(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(
                b"sleep\0" + mark.encode()
            ):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    "command",
    [
        "mount -o remount,rw / && touch /new",
        "mount -o remount,rw,bind /usr && touch /usr/new",
        "mount -t tmpfs none /usr",
        "umount -l /usr",
        "mount --bind /proc/1/root /workspace/input",
        "unshare -Ur mount -o remount,rw /usr",
        "chroot /proc/1/root /bin/true",
        "nsenter -t 1 -a true",
        "mknod output/disk b 8 0",
        "mknod output/memory c 1 1",
    ],
)
def test_no_mount_namespace_or_device_is_had(shell: Shell, command: str) -> None:
    """Root in a sandbox that keeps capabilities could undo the sandbox; here even root cannot."""
    assert shell(command).exit_code not in (0, None)
    assert not list((shell.workspace / "output").iterdir())
    assert not Path("/usr/new").exists()


def test_no_set_uid_program_gives_rights(shell: Shell) -> None:
    """no_new_privs, and no capability to be gained: `su` and its like stay what the command is."""
    program = shell.workspace / "output/id"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o6755)
    before = shell.says("id -u; id -g")
    assert before
    assert shell.says("output/id -u; output/id -g") == before
