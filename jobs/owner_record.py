"""Who runs the workers of a data folder: at most one program, and what an earlier one that was killed left behind.

data_dir/run/up.lock    held by the program; the kernel frees it when it dies, however it dies
data_dir/run/up.json    its pid, since when it runs, and its workers, each with what tells it from a later
                        process of the same number
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jobs.errors import SostenutoError, UsageError

POLL_SECONDS = 0.05


class AlreadyRunning(SostenutoError):
    """Another program runs the workers of this data folder. Exit code 4: not possible in this state."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process for certain: numbers are used again, a number with its time of birth is not."""

    pid: int
    born: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """None when there is no such process, or only what is left of it until its parent looks."""
        born = _born(pid)
        return None if born is None else cls(pid, born)

    def alive(self) -> bool:
        return _born(self.pid) == self.born


class OwnerRecord:
    """The place in the data folder where its owner writes itself down. Only through `owned`."""

    def __init__(self, file: Path, program: str) -> None:
        self._file = file
        self._program = program
        self._since = time.time()

    def write(self, workers: Sequence[ProcessMark] = ()) -> None:
        """Notes this program and its workers. Raises SostenutoError where nothing can be written."""
        data = {
            "program": self._program,
            "pid": os.getpid(),
            "since": self._since,
            "workers": [asdict(worker) for worker in workers],
        }
        draft = self._file.with_suffix(".new")
        try:
            draft.write_text(json.dumps(data))
            draft.replace(self._file)
        except OSError as error:
            raise _unusable(draft, error) from error

    def left_over_workers(self) -> list[ProcessMark]:
        """The workers of an earlier owner that still run."""
        return [worker for worker in _workers(_read(self._file)) if worker.alive()]

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


@contextlib.contextmanager
def owned(data_dir: Path, program: str) -> Iterator[OwnerRecord]:
    """Makes this program the one that runs the folder's workers, to the end of the block.

    The folder is made where it is missing. Raises AlreadyRunning, UsageError where the folder cannot be used.
    """
    run = data_dir / "run"
    try:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (run / "up.lock").open("ab")
    except OSError as error:
        raise _unusable(Path(error.filename or run), error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _already_running(data_dir, _read(run / "up.json")) from None
        record = OwnerRecord(run / "up.json", program)
        yield record
        record.forget()  # not after an error: workers that could not be ended would be forgotten with it


def end_left_overs(
    workers: Sequence[ProcessMark], seconds: float, interrupted: Callable[[], bool] = lambda: False
) -> list[ProcessMark]:
    """Waits until the workers of a dead owner have stopped, as they do by themselves; kills those that have not after
    `seconds`, or at once when `interrupted` says so, and returns them. When it returns, none of them runs."""
    deadline = time.monotonic() + seconds
    while running := [worker for worker in workers if worker.alive()]:
        if time.monotonic() > deadline or interrupted():
            break
        time.sleep(POLL_SECONDS)
    for worker in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    while any(worker.alive() for worker in running):
        time.sleep(POLL_SECONDS)
    return running


def _already_running(data_dir: Path, data: dict[str, Any]) -> AlreadyRunning:
    try:
        since = datetime.fromtimestamp(float(data["since"])).astimezone()
        who = f"{data['program']} (pid {int(data['pid'])}, since {since:%Y-%m-%d %H:%M:%S})"
        hint = f"use it as it is, or stop it first: kill {int(data['pid'])}"
    except (KeyError, TypeError, ValueError):
        who, hint = "another program", "stop it first"
    return AlreadyRunning(f"{who} already runs the workers of {data_dir}", hint=hint)


def _unusable(place: Path, error: OSError) -> UsageError:
    reason = (error.strerror or type(error).__name__).lower()
    return UsageError(
        f"{place}: {reason}",
        hint="the data folder must be writable and have room; SOSTENUTO_DATA_DIR names another one",
    )


def _read(file: Path) -> dict[str, Any]:
    """What stands in the record; nothing where it is missing or was cut off by a crash."""
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _workers(data: dict[str, Any]) -> Iterator[ProcessMark]:
    entries = data.get("workers")
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            yield ProcessMark(int(entry["pid"]), str(entry["born"]))


def _born(pid: int) -> str | None:
    """The time of a living process's birth, exact enough to tell it from a later one; None for a dead one."""
    if Path("/proc/self/stat").exists():
        try:
            # "pid (name) state ppid …": the name may itself hold spaces and brackets
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return None if fields[0] in {"Z", "X"} else f"{boot}/{fields[19]}"
    answer = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, born = answer.stdout.strip().partition(" ")
    return None if not born or state.startswith("Z") else born.strip()
