"""The supervisor over small processes that do what a test needs: end, ignore signals, hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.owner_record import AlreadyRunning, ProcessMark, end_left_overs, owned
from jobs.supervisor import (
    LONGEST_PAUSE,
    SETTLED_SECONDS,
    Change,
    Happening,
    Supervisor,
    WorkerFailed,
    WorkerSpec,
    restart_pause,
)
from tests.waiting import wait_until

READY = "print('ready w@h', flush=True);"
UNTIL_PARENT_DIES = READY + "import sys; sys.stdin.read()"
IGNORES_TERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + READY + "time.sleep(3600)"
)


@dataclass(frozen=True, slots=True)
class Program(WorkerSpec):
    """A Python one-liner in a worker's place."""

    code: str = UNTIL_PARENT_DIES

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]


LEAVES = READY + "sys = __import__('sys'); sys.stdin.read(1); print('drained', flush=True)"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "w.log"


@pytest.fixture
def running(log: Path, clock: Clock) -> Iterator[Supervisor]:
    """One well-behaved worker that is ready."""
    supervisor = Supervisor([Program("w", log)], clock)
    supervisor.start()
    assert _next(supervisor).change is Change.READY
    yield supervisor
    for child in supervisor.children:
        child.signal(signal.SIGKILL)
    supervisor.stop(0)


def _next(supervisor: Supervisor) -> Happening:
    """The next thing that happens: one, not several at once."""
    (happening,) = wait_until(supervisor.look, reason="something happens")
    return happening


def _killed(supervisor: Supervisor) -> Happening:
    (child,) = supervisor.children
    child.signal(signal.SIGKILL)
    return _next(supervisor)


def test_a_worker_that_was_asked_to_leave_stays_away(log: Path, clock: Clock) -> None:
    """Its exit code alone, 0, would not say so: a worker that anybody else stopped is started again."""
    supervisor = Supervisor([Program("w", log, code=LEAVES)], clock)
    supervisor.start()
    assert _next(supervisor).change is Change.READY
    (child,) = supervisor.children
    stdin = child._process.stdin
    assert stdin is not None
    stdin.write(b"x")
    stdin.flush()
    assert _next(supervisor) == Happening(Change.DRAINED, "w", child.pid, 0)
    clock.now += 10 * LONGEST_PAUSE
    assert supervisor.look() == []
    assert (supervisor.children, supervisor.all_ready) == ([], True)


def test_pauses_double_and_are_bounded() -> None:
    assert [restart_pause(deaths) for deaths in range(1, 6)] == [0, 0.5, 1, 2, 4]
    assert restart_pause(10_000) == LONGEST_PAUSE


def test_a_dead_worker_is_started_again_after_its_pause(running: Supervisor, clock: Clock) -> None:
    (child,) = running.children
    assert _killed(running) == Happening(Change.DIED, "w", child.pid, -signal.SIGKILL, 0.0)
    assert _next(running).change is Change.STARTED_AGAIN
    assert _next(running).change is Change.READY
    assert _killed(running).pause == 0.5
    clock.now += 0.4
    assert running.look() == []
    clock.now += 0.2
    assert _next(running).change is Change.STARTED_AGAIN


def test_a_settled_worker_begins_anew(running: Supervisor, clock: Clock) -> None:
    _killed(running)
    _next(running)
    _next(running)
    clock.now += SETTLED_SECONDS
    assert _killed(running).pause == 0


def test_a_start_that_cannot_succeed_fails_with_the_workers_words(log: Path) -> None:
    code = "import sys; sys.stderr.write('noise\\nerror: no such model\\nhint: name another\\n'); sys.exit(2)"
    supervisor = Supervisor([Program("good", log), Program("w", log.with_name("b.log"), code=code)])
    supervisor.start()
    with pytest.raises(WorkerFailed, match=r"^no such model$") as caught:
        wait_until(lambda: supervisor.look() and False, reason="it fails")
    supervisor.stop(0)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "name another"


def test_an_earlier_processs_error_in_the_log_is_not_repeated(log: Path) -> None:
    log.parent.mkdir()
    log.write_text("error: long ago\n")
    supervisor = Supervisor([Program("w", log, code="raise SystemExit(3)")])
    supervisor.start()
    with pytest.raises(WorkerFailed, match="the worker w ended with exit code 3 at its start") as caught:
        wait_until(lambda: supervisor.look() and False, reason="it fails")
    assert caught.value.hint == f"its log: {log}"


def test_what_a_worker_said_last_comes_with_its_death(log: Path) -> None:
    code = READY + "import sys; sys.stdin.readline(); sys.stderr.write('a\\nOSError: full\\n'); sys.exit(1)"
    supervisor = Supervisor([Program("w", log, code=code)])
    supervisor.start()
    _next(supervisor)
    (child,) = supervisor.children
    assert child._process.stdin is not None
    child._process.stdin.close()
    death = _next(supervisor)
    assert (death.exit_code, death.last_words) == (1, "OSError: full")


def test_stopping_ends_all_and_kills_nobody(log: Path) -> None:
    specs = [Program("a", log), Program("b", log.with_name("b.log"))]
    supervisor = Supervisor(specs)
    supervisor.start()
    wait_until(lambda: (supervisor.look(), supervisor.all_ready)[1], reason="ready")
    pids = [child.pid for child in supervisor.children]
    assert supervisor.stop(60) == []
    assert supervisor.children == []
    assert [ProcessMark.of(pid) for pid in pids] == [None, None]


def test_a_stubborn_worker_is_killed_after_the_grace_time(log: Path, clock: Clock) -> None:
    supervisor = Supervisor([Program("w", log, code=IGNORES_TERM)], clock)
    supervisor.start()
    (_,) = wait_until(supervisor.look, reason="it is ready, its handler set")

    def time_passes() -> int:
        clock.now += 5
        return 0

    (killed,) = supervisor.stop(10, time_passes)
    assert killed.wait() == -signal.SIGKILL


def test_the_third_request_kills_at_once(log: Path, clock: Clock) -> None:
    supervisor = Supervisor([Program("w", log, code=IGNORES_TERM)], clock)
    supervisor.start()
    (_,) = wait_until(supervisor.look, reason="it is ready, its handler set")
    (killed,) = supervisor.stop(3600, lambda: 2)  # the clock stands still: only the request can end it
    assert killed.wait() == -signal.SIGKILL


def test_a_large_log_makes_room(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.supervisor.LARGEST_LOG", 10)
    log.parent.mkdir()
    log.write_text("x" * 11)
    supervisor = Supervisor([Program("w", log)])
    supervisor.start()
    supervisor.stop(60)
    assert log.read_text() == ""
    assert log.with_name("w.old.log").read_text() == "x" * 11


def test_an_owner_keeps_others_out_until_it_ends(tmp_path: Path) -> None:
    with owned(tmp_path, "sostenuto up") as record:
        record.write()
        expected = pytest.raises(AlreadyRunning, match=rf"^sostenuto up \(pid {os.getpid()}, since ")
        with expected as caught, owned(tmp_path, "sostenuto demo"):
            pytest.fail("two owners")
        assert caught.value.exit_code == 4
    with owned(tmp_path, "sostenuto demo"):
        pass


def test_left_overs_are_awaited_and_the_stubborn_killed() -> None:
    quick = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stuck = subprocess.Popen([sys.executable, "-c", IGNORES_TERM], stdout=subprocess.DEVNULL)
    marks = [ProcessMark.of(quick.pid), ProcessMark.of(stuck.pid)]
    assert quick.stdin is not None
    quick.stdin.write(b"\n")
    quick.stdin.close()
    quick.wait()
    left = [mark for mark in marks if mark is not None]
    assert [mark.pid for mark in end_left_overs(left, 0)] == [stuck.pid]
    assert stuck.wait() == -signal.SIGKILL


def test_a_mark_tells_a_process_from_a_later_one_of_its_number() -> None:
    mark = ProcessMark.of(os.getpid())
    assert mark is not None
    assert mark.alive()
    assert not ProcessMark(mark.pid, mark.born + "0").alive()
