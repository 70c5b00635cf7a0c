"""Slices that a test moves on one model call at a time: each is a thread that stops before every call.

Only one of them moves at a moment, and the mover waits until it stands still again, so that a story of several
workers is told in one order only, and can be told again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from storage import crashpoints
from storage.crashpoints import CrashPoint
from storage.records import RunRef
from tests.agent.stage import PowerCut
from worker.cancel import CancelToken
from worker.model.types import ModelReply, ModelRequest
from worker.process import WorkerProcess

LONGEST_WAIT = 120.0  # bounds a wait for a thread; no step takes a second
LONGEST_STORY = 1800.0  # bounds how long a slice stands before a call


def power_cut() -> None:
    """The process dies here."""
    raise PowerCut


class Fuse:
    """Does something at one crash point's Nth passing by the thread that armed it, once."""

    def __init__(self) -> None:
        self.point: CrashPoint | None = None
        self._act = power_cut
        self._left = 0
        self._thread = threading.current_thread()

    def arm(
        self,
        point: CrashPoint | None,
        act: Callable[[], None] = power_cut,
        nth: int = 1,
        hand: Hand | None = None,
    ) -> None:
        """Whose passing counts: the hand's; without one the caller's."""
        self._act, self._left = act, nth
        self._thread = threading.current_thread() if hand is None else hand.thread
        self.point = point

    def disarm(self) -> None:
        self.point = None

    def burn(self) -> None:
        """Called by `crash_point` at the armed one."""
        if threading.current_thread() is not self._thread:
            return
        self._left -= 1
        if self._left == 0:
            self.point = None
            self._act()


def install(fuse: Fuse) -> Callable[[], None]:
    """Puts the fuse where a process has the one of its environment; returns the way back."""
    vars(crashpoints)["_fuse"] = fuse

    def restore() -> None:
        vars(crashpoints)["_fuse"] = None

    return restore


class Hand:
    """One slice in a thread of its own, standing before a model call or ended."""

    def __init__(self, hands: Hands, process: WorkerProcess, work: Callable[[], str | None]) -> None:
        self.process = process
        self.request: ModelRequest | None = None  # that it stands before
        self.ref: RunRef | None = None  # known from its first call on
        self.ended = False
        self.died = False
        self.answered: str | None = None  # the job whose wake-up it answered
        self.late = False  # another run may have gone on with its job
        self._hands = hands
        self._work = work
        self._error: BaseException | None = None
        self._may_go = self._dies = False
        self._token: CancelToken | None = None
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="a-hand", daemon=True)

    def begin(self) -> None:
        """Starts the slice, and returns when it stands still."""
        self.thread.start()
        self.settle()

    def go_on(self) -> None:
        """Lets it make its call, and returns when it stands still again."""
        with self._changed:
            self._may_go, self.request = True, None
            self._changed.notify_all()
        self.settle()

    def cut(self) -> None:
        """Its process dies before the call, where it stands."""
        self._dies = True
        self.go_on()

    def settle(self) -> None:
        """Waits until it stands still; what broke in its thread is raised here."""
        with self._changed:
            still = self._changed.wait_for(self._stands_still, LONGEST_WAIT)
        assert still, "a slice did not come to a stand"
        if self.ended:
            self.thread.join(LONGEST_WAIT)
            self._hands.forget(self)
        if self._error is not None:
            raise self._error

    def _stands_still(self) -> bool:
        cancelled = self._token is not None and self._token.reason is not None
        return self.ended or (self.request is not None and not cancelled)

    def stop_before_call(self, request: ModelRequest, cancel: CancelToken) -> ModelRequest:
        """In the hand's thread: waits for the word to go on, or for the end of its run."""
        if self.ref is None:
            self.ref = next(live.ref for live in self.process.live.all() if live.cancel is cancel)
        with self._changed:
            self._token, self.request, self._may_go = cancel, request, False
            self._changed.notify_all()
        unregister = cancel.on_cancel(self._wake)
        with self._changed:
            heard = self._changed.wait_for(lambda: self._may_go or cancel.reason is not None, LONGEST_STORY)
        unregister()
        assert heard, "nobody let this slice go on"
        if self._dies:
            power_cut()
        # A zombie repeats what another run has said since: no conversation that goes on.
        return replace(request, label=f"{request.label}/late-{self.ref.run_id}") if self.late else request

    def _wake(self) -> None:
        with self._changed:
            self.request = None
            self._changed.notify_all()

    def _run(self) -> None:
        self._hands.know(self)
        try:
            self.answered = self._work()
        except PowerCut:
            self.died = True
        except BaseException as error:  # noqa: BLE001 - shown by `settle`, in the test's thread
            self._error = error
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()


class Hands:
    """The slices at work, by their threads."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Hand] = {}

    def know(self, hand: Hand) -> None:
        self._by_thread[threading.get_ident()] = hand

    def forget(self, hand: Hand) -> None:
        self._by_thread.pop(hand.thread.ident or 0, None)

    def watch(self, process: WorkerProcess) -> None:
        """Makes the slices of this process stop before each model call; a call by no hand passes."""
        ask = process.models.complete

        def complete(request: ModelRequest, cancel: CancelToken) -> ModelReply:
            hand = self._by_thread.get(threading.get_ident())
            return ask(request if hand is None else hand.stop_before_call(request, cancel), cancel)

        vars(process.models)["complete"] = complete
