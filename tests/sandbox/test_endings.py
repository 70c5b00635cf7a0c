"""How commands end, and that nothing of them outlives that."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.conftest import LEVELS, Shell, make_shell
from tests.waiting import wait_until
from worker.cancel import CancelToken
from worker.sandbox import bwrap, command, landlock, process
from worker.sandbox.base import Caps, Ending, Outcome, SandboxUnavailable

# A daemon that has left its session and its parent, ignores every polite signal and holds no descriptor of ours.
_DAEMON = (
    "setsid bash -c 'trap \"\" TERM HUP INT; exec </dev/null >/dev/null 2>&1; exec -a {mark} sleep 1000' & "
    "(setsid bash -c 'trap \"\" TERM; (exec -a {mark} sleep 1000 </dev/null >/dev/null 2>&1 &) ; sleep 0.05' &) ; "
)


def alive(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if arguments.startswith(mark.encode()):
                found.append(int(folder.name))
    return found


@pytest.fixture
def mark(request: pytest.FixtureRequest) -> str:
    """A name for a test's processes, which no other has."""
    return f"sostenuto-test-{os.getpid()}-{abs(hash(request.node.nodeid))}"


def test_exit_codes(any_shell: Shell) -> None:
    assert any_shell("exit 0") == Outcome(Ending.EXITED, 0)
    assert any_shell("exit 7") == Outcome(Ending.EXITED, 7)
    assert any_shell("kill -9 $$") == Outcome(Ending.EXITED, 137)
    assert any_shell("no-such-program").exit_code == 127


def test_stdout_and_stderr_come_together_and_stdin_is_empty(any_shell: Shell) -> None:
    assert any_shell.says("echo out; echo err >&2; cat; echo end") == "out\nerr\nend"


def test_a_command_that_is_over_before_we_look_has_run(
    any_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, or after a freeze: it was told as "cannot be started", and its effect had happened."""

    started: list[int] = []
    pidfd_open = os.pidfd_open

    def late(*arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        begun = process.spawn(*arguments, **more)
        os.waitid(os.P_PID, begun.pid, os.WEXITED | os.WNOWAIT)  # over, and not yet reaped
        started.append(begun.pid)
        return begun

    def reaped(pid: int) -> int:
        """Whoever adopted bwrap's child has reaped it."""
        if pid not in started:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return pidfd_open(pid)

    monkeypatch.setattr(bwrap, "spawn", late)
    monkeypatch.setattr(landlock, "spawn", late)
    monkeypatch.setattr(os, "pidfd_open", reaped)
    assert any_shell("echo done | tee -a output/effects.txt; exit 3") == Outcome(Ending.EXITED, 3)
    assert any_shell.printed == b"done\n"
    assert (any_shell.workspace / "output/effects.txt").read_text() == "done\n"


def test_a_stranger_that_got_the_number_of_a_command_is_left_alone() -> None:
    """What is behind the descriptor is killed in the end: it must be bwrap's own child, or bwrap."""
    with subprocess.Popen(["sleep", "1000"]) as own, subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            assert _behind(bwrap.descriptor_of(own.pid, os.getpid())) == own.pid
            assert _behind(bwrap.descriptor_of(stranger.pid, own.pid)) == own.pid
        finally:
            own.kill()
            stranger.kill()


def _behind(descriptor: int) -> int:
    """The process behind a descriptor, which is closed."""
    told = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    os.close(descriptor)
    return int(told.partition("Pid:")[2].split()[0])


def test_a_daemon_dies_when_its_command_exits(any_shell: Shell, mark: str) -> None:
    assert any_shell(_DAEMON.format(mark=mark) + "sleep 0.3").exit_code == 0
    assert alive(mark) == []


def test_a_daemon_dies_when_its_command_times_out(any_shell: Shell, mark: str) -> None:
    outcome = any_shell(_DAEMON.format(mark=mark) + "trap '' TERM; echo up; sleep 1000", timeout=1)
    assert outcome == Outcome(Ending.TIMEOUT)
    assert any_shell.printed == b"up\n"
    assert alive(mark) == []


def test_a_daemon_dies_when_its_command_is_cancelled(any_shell: Shell, mark: str) -> None:
    started = threading.Event()
    ended: list[Outcome] = []

    def run() -> None:
        ended.append(
            any_shell.sandbox.run(
                [
                    "/bin/bash",
                    "-c",
                    _DAEMON.format(mark=mark) + "sleep 0.3; echo up; exec >&- 2>&-; sleep 1000",
                ],
                workspace=any_shell.workspace,
                timeout=100,
                cancel=any_shell.cancel,
                on_output=lambda _: started.set(),
            )
        )

    runner = threading.Thread(target=run)
    runner.start()
    assert started.wait(30)
    any_shell.cancel.cancel("cancel")
    runner.join(30)
    assert ended == [Outcome(Ending.CANCELLED)]
    assert alive(mark) == []


def test_a_command_cancelled_before_it_starts_does_not_start(any_shell: Shell) -> None:
    any_shell.cancel.cancel("shutdown")
    assert any_shell("touch started") == Outcome(Ending.CANCELLED)
    assert not (any_shell.workspace / "started").exists()


@pytest.mark.parametrize("level", list(LEVELS))
def test_a_daemon_dies_when_its_worker_is_killed(level: str, tmp_path: Path, mark: str) -> None:
    shell = make_shell(level, tmp_path)
    script = (
        "import sys; from pathlib import Path; from tests.sandbox.conftest import LEVELS;"
        "from worker.sandbox.base import Caps; from worker.cancel import CancelToken;"
        "LEVELS[sys.argv[1]](Caps()).run(['/bin/bash', '-c', sys.argv[3]], workspace=Path(sys.argv[2]), timeout=300,"
        "cancel=CancelToken(), on_output=lambda data: print('up', flush=True))"
    )
    command = _DAEMON.format(mark=mark) + "sleep 0.3; echo up; sleep 1000"
    with subprocess.Popen(
        [sys.executable, "-c", script, level, str(shell.workspace), command],
        stdout=subprocess.PIPE,
        cwd=Path.cwd(),
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"up\n"
        assert len(alive(mark)) == 2
        worker.kill()
    # Bounded polling: the kernel and the launcher need a moment after a SIGKILL that nobody waits for.
    wait_until(lambda: not alive(mark))


def test_commands_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    """Death with the parent means the parent's *thread*: it must be one that stays."""
    shell = make_shell("bwrap", tmp_path)
    spawners: set[str] = set()
    real = subprocess.Popen

    def popen(*args: object, **kwargs: object) -> object:
        spawners.add(threading.current_thread().name)
        return real(*args, **kwargs)  # type: ignore[call-overload]  # passes through what it was given

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", popen)
        for _ in range(3):
            thread = threading.Thread(target=shell, args=("true",))
            thread.start()
            thread.join()
    assert len(spawners) == 1
    assert spawners.pop().startswith("sandbox-spawner")


def test_a_broken_reader_leaves_nothing_behind(any_shell: Shell, mark: str) -> None:
    def broken(_: bytes) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        any_shell.sandbox.run(
            ["/bin/bash", "-c", _DAEMON.format(mark=mark) + "echo up; sleep 1000"],
            workspace=any_shell.workspace,
            timeout=100,
            cancel=CancelToken(),
            on_output=broken,
        )
    assert alive(mark) == []


def test_no_descriptor_and_no_child_is_leaked(any_shell: Shell) -> None:
    any_shell("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        any_shell("true")
        any_shell("sleep 100", timeout=0.1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()
    assert [pid for pid in children if Path(f"/proc/{pid}/stat").read_text("utf-8").split()[2] == "Z"] == []


def test_many_commands_at_once(shell: Shell) -> None:
    outcomes: list[Outcome] = []

    def run(number: int) -> None:
        sandbox = shell.sandbox
        seen = bytearray()
        outcomes.append(
            sandbox.run(
                ["/bin/bash", "-c", f"echo {number} > output/{number}"],
                workspace=shell.workspace,
                timeout=60,
                cancel=CancelToken(),
                on_output=seen.extend,
            )
        )

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome(Ending.EXITED, 0)] * 20
    assert len(list((shell.workspace / "output").iterdir())) == 20


def test_a_sandbox_that_cannot_be_set_up_says_why(any_shell: Shell) -> None:
    (any_shell.workspace / "input").rmdir()
    gone = any_shell.workspace.with_name("gone")
    any_shell.workspace.rename(gone)
    with pytest.raises(SandboxUnavailable):
        any_shell("true")


@pytest.mark.parametrize("grouped", [True, False], ids=["cgroup", "no cgroup"])
@pytest.mark.parametrize("level", list(LEVELS))
def test_a_fork_bomb_ends(
    level: str, grouped: bool, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not grouped:
        monkeypatch.setattr(command, "pids_parent", lambda: None)
    shell = make_shell(level, tmp_path, Caps(processes=40))
    # Where only the watch caps them, processes are many but not endless: it needs some of the machine to look.
    bomb = "bomb() { bomb | bomb & }; bomb" if grouped else "for _ in $(seq 400); do sleep 1000 & done"
    outcome = shell(f"(exec -a {mark} sleep 1000 &) ; {bomb}; sleep 1000", timeout=3)
    assert outcome.ending in {Ending.TIMEOUT, Ending.PROCESSES, Ending.EXITED}
    if (
        not grouped and os.geteuid() == 0
    ):  # neither a group nor RLIMIT_NPROC, which spares root: the watch it was
        assert outcome.ending is Ending.PROCESSES
    assert alive(mark) == []
    assert shell("echo still here").exit_code == 0


@pytest.mark.parametrize("level", list(LEVELS))
def test_a_failed_start_closes_no_descriptor_of_somebody_else(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that was closed twice would by the second time be another thread's file."""
    shell = make_shell(level, tmp_path)
    shell("true")

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", full)
    caught = None
    try:
        shell("true")
    except SandboxUnavailable as error:
        caught = error  # holds what had been made until then
    assert caught is not None
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    del caught
    gc.collect()
    for fd in others:
        os.close(fd)
