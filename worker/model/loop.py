"""One asyncio loop thread a process, on which all its model calls wait.

An agent is a thread and its call must be cancellable from another one. A blocking client cannot be: closing it does
not wake the reader. A coroutine can, within milliseconds, and hundreds of them cost one thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from worker.cancel import Cancelled, CancelToken
from worker.model.errors import ModelError, ModelErrorKind

T = TypeVar("T")


class ModelLoop:
    """An event loop in a daemon thread: started by the first `run`, ended by `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, factory: Callable[[], Coroutine[Any, Any, T]], cancel: CancelToken) -> T:
        """Run the coroutine on the loop and wait for its end, from any thread but the loop's own.

        Raises Cancelled as soon as `cancel` is set: the coroutine is cancelled too, and cleans up behind the caller's
        back. Raises ModelError (INTERRUPTED) where `stop` ended it; else what the coroutine raises.
        """
        cancel.raise_if_cancelled()
        with self._lock:  # so that `stop` cannot come between: what is scheduled before it, it ends
            future = asyncio.run_coroutine_threadsafe(factory(), self._running())

        def give_up() -> None:
            future.cancel()

        unregister = cancel.on_cancel(give_up)
        try:
            return future.result()
        except CancelledError:
            if cancel.reason is not None:
                raise Cancelled(cancel.reason) from None
            raise ModelError(ModelErrorKind.INTERRUPTED, "the worker's model loop was stopped") from None
        finally:
            unregister()

    def stop(self, timeout: float = 5.0) -> None:
        """End every call in flight, then the thread. A later `run` starts anew."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="sostenuto-model-loop", daemon=True
            )
            self._thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


_shared = ModelLoop()


def shared_loop() -> ModelLoop:
    """The process's loop."""
    return _shared
