"""A run's turn at the endpoint it calls, where the settings limit its use. Elsewhere nothing is asked of the database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.model_settings import LimitSettings
from storage.engine import Database
from storage.errors import StorageError
from storage.records import RunRef
from storage.turns import Limits, leave_turn, take_turn
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.profiles import Profile

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Turn:
    """What is known of a call when it is over: the tokens it took; None where it failed."""

    tokens: int | None = None


@contextmanager
def turn_at(
    db: Database, profile: Profile, run: RunRef | None, expected: int, wake: Callable[[str], None]
) -> Iterator[Turn]:
    """Holds the run's place at the endpoint and of the model while the block calls.

    Raises ModelError (RATE_LIMIT, `own_limit`) at once where it must wait, StorageError where nobody can tell.
    """
    wanted = [
        (key, limits)
        for key, limits in ((profile.endpoint_key, profile.endpoint_limits), (profile.key, profile.limits))
        if limits and run is not None
    ]
    turn, held = Turn(), list[tuple[str, LimitSettings]]()
    try:
        for key, limits in wanted:
            assert run is not None
            wait = take_turn(db, key, _plain(limits), run, expected)
            if wait is not None:
                raise ModelError(
                    ModelErrorKind.RATE_LIMIT,
                    f"{key}: its limit in the settings is reached ({_told(limits)})",
                    retry_after=wait,
                    own_limit=True,
                )
            held.append((key, limits))
        yield turn
    finally:
        for key, limits in held:
            assert run is not None
            waiting = _leave(db, key, limits, run, 0 if turn.tokens is None else turn.tokens - expected)
            if waiting is not None:
                wake(waiting)


def _leave(db: Database, key: str, limits: LimitSettings, run: RunRef, more: int) -> str | None:
    try:
        return leave_turn(db, key, _plain(limits), run, more)
    except StorageError as error:  # the place comes back when the run is over
        log.warning("cannot give back the place at %s: %s", key, error)
        return None


def _plain(limits: LimitSettings) -> Limits:
    return Limits(limits.concurrency, limits.requests_per_minute, limits.tokens_per_minute)


def _told(limits: LimitSettings) -> str:
    named = (
        (limits.concurrency, "calls at once"),
        (limits.requests_per_minute, "calls a minute"),
        (limits.tokens_per_minute, "tokens a minute"),
    )
    return ", ".join(f"{limit:,} {what}" for limit, what in named if limit)
