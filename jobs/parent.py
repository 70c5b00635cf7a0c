"""A process that belongs to a parent (`sostenuto up`): it says when it is ready, and stops when the parent is gone.

The parent holds the other end of this process's standard input. The kernel closes that end however the parent dies,
so nothing has to be polled, and a reused process id cannot deceive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

STDIN = 0


def follow_parent(longest_stop: float) -> None:
    """From now on the end of standard input means SIGTERM to this process, and its end after `longest_stop` seconds."""
    threading.Thread(target=_follow, args=(longest_stop,), name="parent", daemon=True).start()


def tell_ready(name: str) -> None:
    """Tells the parent that this process does its work now, under which name: a worker's, or a server's URL."""
    with contextlib.suppress(OSError):  # the parent died: the other thread has noticed
        sys.stdout.write(f"ready {name}\n")
        sys.stdout.flush()


def tell_drained() -> None:
    """Tells the parent that this process ends because somebody asked it to leave: it is not to be started again."""
    with contextlib.suppress(OSError):
        sys.stdout.write("drained\n")
        sys.stdout.flush()


def _follow(longest_stop: float) -> None:
    with contextlib.suppress(OSError):
        while os.read(STDIN, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)  # the same way as any other stop, also before the worker is ready
    time.sleep(longest_stop)
    os._exit(1)  # stuck: a worker's leases run out
