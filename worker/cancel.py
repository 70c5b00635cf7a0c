"""How one part of a worker tells another to stop: a token that is set once, with a reason."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from storage.errors import SostenutoError

log = logging.getLogger(__name__)


class Cancelled(SostenutoError):
    """The work was stopped before it ended; `reason` is the token's ('cancel', 'shutdown', 'lease_lost')."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"stopped: {reason}")
        self.reason = reason


class CancelToken:
    """Set once, with a reason; callbacks run at once, in the canceller's thread.

    The first reason wins. A callback runs exactly once, or never if it was unregistered first; one that is running
    while another thread unregisters it still ends. Callbacks must be short and must not raise: what they raise is
    logged, so that one broken callback does not keep the others from stopping their work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = threading.Event()
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}

    @property
    def reason(self) -> str | None:
        """Why the work must stop; None while it need not."""
        return self._reason

    def cancel(self, reason: str) -> None:
        """Ask for a stop. Returns after the registered callbacks ran; a second call changes nothing."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
            self._set.set()
        for callback in callbacks:
            _call(callback)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` when the token is set (now, if it is); returns the function that unregisters it."""
        key = object()
        with self._lock:
            pending = self._reason is None
            if pending:
                self._callbacks[key] = callback
        if not pending:
            _call(callback)

        def unregister() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return unregister

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; True if the token is set."""
        return self._set.wait(timeout)

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the token is set."""
        if self._reason is not None:
            raise Cancelled(self._reason)


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("a cancel callback failed")
