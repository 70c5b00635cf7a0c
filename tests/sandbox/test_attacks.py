"""Real attacks from inside, at each level this machine supports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import Shell, make_shell
from worker.sandbox import toolchain
from worker.sandbox.base import SandboxUnavailable
from worker.sandbox.probe import attack
from worker.sandbox.toolchain import python_program


def _python(shell: Shell, script: str, *arguments: str) -> str:
    """What a Python script in the sandbox prints."""
    (shell.workspace / "script.py").write_text(script, "utf-8")
    quoted = " ".join(f"'{argument}'" for argument in arguments)
    return shell.says(f"{python_program()} -I script.py {quoted} 2>&1")


def test_the_probe_finds_nothing(shell: Shell) -> None:
    assert attack(shell.sandbox) == []


def test_the_probe_can_fail(tmp_path: Path) -> None:
    """Run in a process of its own, because without a sandbox the attacks work: it is what a broken one looks like."""
    script = (
        "from worker.sandbox.base import Caps; from worker.sandbox.landlock import Unconfined;"
        "from worker.sandbox.probe import attack; import json; print(json.dumps(attack(Unconfined(Caps()))))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=Path.cwd())
    worked = json.loads(ran.stdout)
    assert {
        "read files outside its workspace",
        "create files outside its workspace",
        "connect by TCP",
        "send by UDP",
        "connect to a Unix socket",
        "connect to an abstract socket",
        "signal the worker",
    } <= set(worked)


def test_secrets_of_the_worker_are_out_of_reach(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-in-environment")
    seen = shell.says(
        f"env; cat /proc/*/environ /proc/{os.getpid()}/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    )
    assert "sk-canary" not in seen
    names = {line.partition("=")[0] for line in shell.says("env").splitlines()}
    assert names <= {"HOME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "TERM", "TMPDIR", "USER", "_"}


def test_no_descriptor_of_the_worker_is_inherited(shell: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary", "utf-8")
    with secret.open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        script = (
            "import os\n"
            "for fd in range(3, 1000):\n"
            "    try:\n"
            "        print('inherited', os.fstat(fd))\n"
            "    except OSError:\n"
            "        pass\n"
        )
        assert _python(shell, script) == ""


def test_other_jobs_and_the_data_folder_are_out_of_reach(shell: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other-job"
    other.mkdir()
    (other / "file").write_text("canary", "utf-8")
    (shell.workspace / "link").symlink_to(other)
    for path in (other, "link", "../other-job", f"/proc/self/root{other}"):
        assert "canary" not in shell.says(f"cat {path}/file; ls {path}")
        shell(
            f"echo x > {path}/new; rm -rf {path}/file; mv {path}/file .; ln {path}/file hard; cp -r {path}/. ."
        )
    assert [path.name for path in other.iterdir()] == ["file"]
    assert (other / "file").read_text("utf-8") == "canary"
    assert not (shell.workspace / "file").exists()
    assert not (shell.workspace / "hard").exists()


def test_metadata_of_files_outside_stays(shell: Shell, tmp_path: Path) -> None:
    """Landlock does not look at chmod, chown, utimes and extended attributes: the worker's files must survive them."""
    file = tmp_path / "database"
    file.write_text("x", "utf-8")
    file.chmod(0o640)
    os.utime(file, (1000, 1000))
    shell(
        f"chmod 0 {file}; chown 12345 {file}; touch -d 2001-01-01 {file}; truncate -s 0 {file}; setfattr -n user.a -v b {file}"
    )
    status = file.stat()
    assert (status.st_mode & 0o777, status.st_mtime, status.st_size, status.st_uid) == (
        0o640,
        1000,
        1,
        os.geteuid(),
    )
    assert os.listxattr(file) == []


def test_the_toolchain_works_and_is_read_only(shell: Shell) -> None:
    assert shell.says("python3 -c 'print(6 * 7)'") == "42"
    assert shell.says("printf 'b\\na\\n' | sort | head -1; seq 3 | awk '{s+=$1} END {print s}'") == "a\n6"
    before = Path("/usr/bin/env").stat().st_mode
    shell("touch /usr/bin/new /usr/local/new /etc/new; chmod 0 /usr/bin/env; rm -f /usr/bin/env")
    assert Path("/usr/bin/env").stat().st_mode == before
    assert not any(Path(path).exists() for path in ("/usr/bin/new", "/usr/local/new", "/etc/new"))


def test_the_workspace_is_usable_by_both_sides(shell: Shell) -> None:
    (shell.workspace / "input/given").write_text("given", "utf-8")
    root = "/workspace" if shell.sandbox.level == "bwrap" else str(shell.workspace)
    assert shell.says("pwd; cat input/given") == f"{root}\ngiven"
    assert shell("mkdir -p output/d && echo made > output/d/f && rm input/given").exit_code == 0
    made = shell.workspace / "output/d/f"
    assert made.read_text("utf-8") == "made\n"
    assert made.stat().st_uid == os.geteuid()
    made.write_text("changed", "utf-8")
    assert shell.says("cat output/d/f") == "changed"
    assert not list(shell.workspace.glob(".sostenuto-*"))


def test_git_and_sed_work(shell: Shell) -> None:
    """The tools that set permissions and times must not fail where that does nothing."""
    (shell.workspace / "output/f").write_text("a\n", "utf-8")
    assert (
        shell(
            "cd output && sed -i s/a/b/ f && cp -p f g && tar cf t.tar f && mkdir x && tar xf t.tar -C x"
        ).exit_code
        == 0
    )
    assert shell.says("cat output/x/f output/g") == "b\nb"


def test_logs_are_read_only_under_bwrap(tmp_path: Path) -> None:
    shell = make_shell("bwrap", tmp_path)
    (shell.workspace / "logs/a").write_text("log", "utf-8")
    shell("echo x > logs/a; rm -rf logs; mv logs away; touch logs/new")
    assert (shell.workspace / "logs/a").read_text("utf-8") == "log"
    assert [path.name for path in (shell.workspace / "logs").iterdir()] == ["a"]


def test_logs_replaced_by_a_link_mount_nothing(tmp_path: Path) -> None:
    """As a command at a weaker level could have left it."""
    shell = make_shell("bwrap", tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("canary", "utf-8")
    (shell.workspace / "logs").rmdir()
    (shell.workspace / "logs").symlink_to(secret)
    assert "canary" not in shell.says("cat logs/file")


_SOCKETS = """
import socket, sys
opened = []
for family in range(0, 46):
    for kind in (1, 2, 3, 5, 6):
        for protocol in (0, 262):  # 262: multipath TCP
            try:
                with socket.socket(family, kind, protocol) as s:
                    opened.append(family)
            except OSError:
                pass
print(sorted(set(opened)))
"""


def test_only_confined_socket_families_open(shell: Shell) -> None:
    allowed = {
        "bwrap": [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16],
        "landlock": [],
    }[shell.sandbox.level]
    assert set(json.loads(_python(shell, _SOCKETS))) <= set(allowed)


def test_no_network_reaches_the_host(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert shell(f"exec 3<>/dev/tcp/127.0.0.1/{port}").exit_code != 0
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


_DENIED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
mine = os.getpid()
calls = {
    "unshare": lambda: libc.unshare(0x10000000), "setns": lambda: libc.setns(0, 0),
    "mount": lambda: libc.mount(b"none", b"input", b"tmpfs", 0, None), "chroot": lambda: libc.chroot(b"."),
    "ptrace": lambda: libc.ptrace(0, 0, 0, 0), "io_uring": lambda: libc.syscall(425, 1, 0),
    "keyctl": lambda: libc.syscall(250, 0, -3, 0), "bpf": lambda: libc.syscall(321, 0, 0, 0),
    "perf": lambda: libc.syscall(298, 0, 0, -1, -1, 0), "userfaultfd": lambda: libc.syscall(323, 0),
    "clone_newuser": lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0), "clone3": lambda: libc.syscall(435, 0, 0),
    "x32": lambda: libc.syscall(0x40000000 | 39),
}
print([name for name, call in calls.items() if call() >= 0])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_dangerous_system_calls_are_denied(shell: Shell) -> None:
    assert _python(shell, _DENIED) == "[]"


def test_threads_and_children_work_under_the_filter(shell: Shell) -> None:
    script = (
        "import subprocess, threading\n"
        "t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()\n"
        "print(subprocess.check_output(['echo', 'child']).decode(), end='')\n"
    )
    assert _python(shell, script) == "thread\nchild"


def test_capabilities_and_privileges_are_gone(shell: Shell) -> None:
    """None is held, none can be gained by exec. Root also loses its bounding set; an ordinary user may not empty its own,
    which no_new_privs leaves without effect."""
    script = (
        "import ctypes\n"
        "sets = (ctypes.c_uint32 * 6)()\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), sets)\n"
        "print(any(sets), libc.prctl(39, 0, 0, 0, 0), any(libc.prctl(23, n, 0, 0, 0) == 1 for n in range(41)))\n"
    )
    held, no_new, bounding = _python(shell, script).split()
    assert (held, no_new) == ("False", "1")
    assert bounding == "False" or os.geteuid() != 0


def test_the_worker_cannot_be_signalled_or_slowed(shell: Shell) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        before = os.sched_getaffinity(victim.pid), os.getpriority(os.PRIO_PROCESS, victim.pid)
        shell(
            f"kill -9 {victim.pid} {os.getpid()}; kill -9 -1; renice 19 {victim.pid}; taskset -p 1 {victim.pid}"
        )
        assert victim.poll() is None
        after = os.sched_getaffinity(victim.pid), os.getpriority(os.PRIO_PROCESS, victim.pid)
        assert after == before
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


def test_the_terminal_cannot_be_written_to(shell: Shell) -> None:
    assert (
        _python(
            shell, "import os\ntry:\n    os.open('/dev/tty', os.O_RDWR)\nexcept OSError:\n    print('none')"
        )
        == "none"
    )


def test_the_arguments_of_the_sandbox_cannot_be_read_inside(tmp_path: Path) -> None:
    shell = make_shell("bwrap", tmp_path)
    assert str(tmp_path) not in shell.says("tr '\\0' ' ' < /proc/1/cmdline; cat /proc/1/environ")


def test_workspaces_among_the_toolchain_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything there is readable for every job: other jobs' workspaces would be too."""
    monkeypatch.setattr(toolchain, "SYSTEM_FOLDERS", (*toolchain.SYSTEM_FOLDERS, str(shell.workspace.parent)))
    with pytest.raises(SandboxUnavailable, match="data folder"):
        shell("true")
    monkeypatch.setattr(sys, "base_prefix", str(shell.workspace.parent))
    assert toolchain.python_prefix(shell.workspace) is None
