"""Calling hooks: programs of the user's that are told when a job ends or stops.

The calls to make are in the database since the commit they tell of. One thread of each worker process makes them, so
that neither a job nor a slot waits for a hook; what a hook does wrong is noted on the job and changes nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from jobs.errors import ConfigurationError, did_you_mean
from jobs.settings import Settings
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database
from storage.errors import JobNotFound, StorageError
from storage.hooks import end_hook_call, take_hook_call
from storage.jobs import job_tx
from storage.records import HookCall, NewEvent

log = logging.getLogger(__name__)

GROUP = "sostenuto.hooks"
MOST_HUNG = 4  # calls of one hook that hang in this process: no further one is begun here until one ends
PROBLEM_CHARS = 300
STOP_SECONDS = 2.0

Hook = Callable[[dict[str, Any]], object]
_registered: dict[str, Hook] = {}


def register_hook(name: str, hook: Hook) -> None:
    """Makes a hook known under a name, before an entry point of that name. To be called before the worker starts."""
    _registered[name] = hook


def load_hooks(settings: Settings) -> dict[str, Hook]:
    """The configured hooks. Raises ConfigurationError for one that is not installed or cannot be imported."""
    wanted = dict.fromkeys((*settings.hooks.completion, *settings.hooks.pause))
    return {name: _registered[name] if name in _registered else _installed(name) for name in wanted}


def _installed(name: str) -> Hook:
    known = entry_points(group=GROUP)
    found = next(iter(known.select(name=name)), None)
    if found is None:
        near = did_you_mean(name, known.names)
        raise ConfigurationError(
            f"there is no hook {name!r}" + (f"; {near}" if near else ""),
            hint=f"install a package with an entry point of that name in the group {GROUP}",
        )
    try:
        hook: Hook = found.load()
    except Exception as error:
        raise ConfigurationError(f"the hook {name!r} ({found.value}) cannot be imported: {error}") from error
    return hook


class HookCaller(threading.Thread):
    """Makes the calls that are due, one after the other, whenever it is woken."""

    def __init__(self, db: Database, settings: Settings, hooks: Mapping[str, Hook]) -> None:
        super().__init__(name="hooks", daemon=True)
        self._db = db
        self._hooks = dict(hooks)
        self._timeout = settings.hooks.timeout
        self._hold = settings.hooks.timeout + settings.lease_seconds
        self._hung: list[tuple[str, threading.Thread]] = []
        self._woken = threading.Event()
        self._ended = False

    def wake(self) -> None:
        """There may be calls to make. Cheap, also where there is no hook."""
        self._woken.set()

    def stop(self) -> None:
        """Begins no further call; the rest is another process's, or for the next start."""
        self._ended = True
        self.wake()
        if self.is_alive():
            self.join(STOP_SECONDS)

    def run(self) -> None:
        while self._hooks and not self._ended:
            self._woken.wait()
            self._woken.clear()
            try:
                self.call_due()
            except StorageError as error:
                log.warning("cannot call hooks: %s", error)
            except Exception:
                log.exception("calling hooks failed")

    def call_due(self) -> None:
        """Makes every call that is due now. Raises StorageError; what a hook raises is noted on its job."""
        while not self._ended and (names := self._callable()):
            call = take_hook_call(self._db, names, self._hold)
            if call is None:
                return
            problem = self._make(call)
            crash_point(CrashPoint.HOOK_CALLED)
            self._note(call, problem)

    def _callable(self) -> list[str]:
        self._hung = [(name, thread) for name, thread in self._hung if thread.is_alive()]
        hung = [name for name, _ in self._hung]
        return [name for name in self._hooks if hung.count(name) < MOST_HUNG]

    def _make(self, call: HookCall) -> str | None:
        """Makes one call, and returns what went wrong. A hook that hangs is left behind in a thread of its own."""
        problems: list[str] = []

        def act() -> None:
            try:
                self._hooks[call.name](call.event)
            except BaseException as error:  # noqa: BLE001 - also SystemExit: it is somebody else's program
                problems.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=act, name=f"hook-{call.name}", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            self._hung.append((call.name, thread))
            return f"it did not return within {self._timeout:g} s"
        return problems[0][:PROBLEM_CHARS] if problems else None

    def _note(self, call: HookCall, problem: str | None) -> None:
        if problem is None:
            with self._db.write() as conn:
                end_hook_call(conn, call)
            return
        log.warning("hook %s, told of job %s: %s", call.name, call.job_id, problem)
        data = {"hook": call.name, "event_id": call.event["event_id"], "problem": problem}
        try:
            with job_tx(self._db, call.job_id) as job:
                end_hook_call(job.conn, call)
                job.update({}, NewEvent("hook_failed", "hooks", data=data))
        except JobNotFound:  # deleted meanwhile, and its calls with it
            return
