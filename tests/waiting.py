"""Bounded polling: the only place in the tests where time passes idly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, reason: str = "the condition") -> T:
    """Poll until the predicate is true and return its value; AssertionError naming `reason` after `timeout` s.

    For what another process does and sends no signal of. The timeout is a guard, never an expectation:
    no test may depend on how early the condition holds.
    """
    deadline = time.monotonic() + timeout
    pause = 0.005
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {reason}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
