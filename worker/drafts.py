"""Replies while they are written, told to whoever looks at their job. A job that nobody watches pays nothing for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage.errors import StorageError
from storage.live import tell_live_if_run_owns
from storage.masking import mask_growing

if TYPE_CHECKING:
    from worker.live import LiveRun
    from worker.process import WorkerProcess

log = logging.getLogger(__name__)

TELL_SECONDS = 0.5
MOST_READ = 1_000_000  # characters at the end of a reply that are looked at
MOST_TEXT, MOST_THOUGHTS, MOST_ARGUMENTS = 20_000, 2_000, 2_000  # characters that are told: the newest
MOST_CALLS = 20

SoFar = Callable[[], tuple[str, str, list[tuple[str, str]]]]


class Draft:
    """A reply on its way, read by another thread than the one that receives it. `seq` is its message's number."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.told: dict[str, Any] | None = None
        self._so_far: SoFar | None = None

    def begin(self, so_far: SoFar) -> None:
        """A request has gone out; what an earlier one brought is void."""
        self._so_far = so_far

    def said(self) -> dict[str, Any] | None:
        """What it says by now, masked and bounded: text, reasoning, calls, how many characters in all. None: nothing."""
        if self._so_far is None:
            return None
        text, thoughts, calls = self._so_far()
        if not text and not thoughts and not calls:
            return None
        return {
            "text": _newest(text, MOST_TEXT),
            "reasoning": _newest(thoughts, MOST_THOUGHTS),
            "calls": [
                {"name": name[:200], "arguments": _newest(arguments, MOST_ARGUMENTS)}
                for name, arguments in calls[-MOST_CALLS:]
            ],
            "characters": len(text) + len(thoughts) + sum(len(arguments) for _, arguments in calls),
        }


def _newest(text: str, most: int) -> str:
    """The end of a text that still grows, from a line's beginning where there is one; no piece of a secret in it."""
    masked = mask_growing(text[-MOST_READ:])
    if len(masked) <= most:
        return masked
    end = masked[-most:]
    line = end.find("\n", 0, most // 2)
    return "…" + end[line + 1 :]


class DraftTeller(threading.Thread):
    """Writes down, twice a second at most, what the watched runs of the process are being told by their models."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(name="drafts", daemon=True)
        self._process = process
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(TELL_SECONDS):
            try:
                self.look()
            except StorageError:
                pass  # the heartbeat reports it; nothing hangs on what is told here
            except Exception:
                log.exception("telling of replies failed")

    def look(self) -> None:
        """One round over the runs that somebody watches."""
        for run in self._process.live.all():
            if run.watched and run.draft is not None:
                self._tell(run, run.draft)

    def _tell(self, run: LiveRun, draft: Draft) -> None:
        said = draft.said()
        if said is None or said == draft.told:
            return
        run.told = True  # before the write: the commit that comes next deletes what was told
        if tell_live_if_run_owns(self._process.db, run.ref, draft.seq, said):
            draft.told = said
