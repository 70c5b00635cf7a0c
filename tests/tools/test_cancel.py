"""The token by which work is stopped."""

from __future__ import annotations

import threading

import pytest

from worker.cancel import Cancelled, CancelToken


def test_the_first_reason_wins_and_callbacks_run_once() -> None:
    token = CancelToken()
    ran: list[str | None] = []
    token.on_cancel(lambda: ran.append(token.reason))
    token.cancel("shutdown")
    token.cancel("cancel")
    assert ran == [token.reason] == ["shutdown"]


def test_a_callback_registered_too_late_runs_at_once() -> None:
    token = CancelToken()
    token.cancel("cancel")
    ran: list[int] = []
    token.on_cancel(lambda: ran.append(1))()
    assert ran == [1]


def test_an_unregistered_callback_does_not_run() -> None:
    token = CancelToken()
    ran: list[int] = []
    unregister = token.on_cancel(lambda: ran.append(1))
    unregister()
    unregister()
    token.cancel("cancel")
    assert ran == []


def test_a_broken_callback_does_not_keep_the_others_from_running() -> None:
    token = CancelToken()
    ran: list[int] = []

    def broken() -> None:
        raise RuntimeError

    token.on_cancel(broken)
    token.on_cancel(lambda: ran.append(1))
    token.cancel("cancel")
    assert ran == [1]


def test_waiting_ends_with_the_cancel() -> None:
    token = CancelToken()
    assert not token.wait(0)
    waiter = threading.Thread(target=token.wait, args=(60,))
    waiter.start()
    token.cancel("lease_lost")
    waiter.join(10)
    assert not waiter.is_alive()
    with pytest.raises(Cancelled) as caught:
        token.raise_if_cancelled()
    assert caught.value.reason == "lease_lost"
