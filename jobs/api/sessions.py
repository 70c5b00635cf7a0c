"""Sessions of browsers: a one-time code is exchanged for a cookie. Of both only hashes are stored.

code (15 minutes, once) ── POST /login ──▶ cookie (a day without use, two weeks in all) ── POST /logout ──▶ gone
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from jobs.api.tokens import Principal, Scope
from jobs.audit import entry
from storage import sessions
from storage.engine import Database
from storage.sessions import SessionRow

COOKIE = "sostenuto_session"
COOKIE_PREFIX = "soss_"
CODE_SECONDS = 15 * 60.0
IDLE_SECONDS = 86_400.0
LONGEST_SECONDS = 14 * 86_400.0
_TOUCH_SECONDS = 300.0
_CODE_CHARS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: none is taken for another
_CODE_LENGTH = 20  # 100 bits


@dataclass(frozen=True, slots=True)
class LoginCode:
    """A code as it is shown, once; `until` is in epoch seconds."""

    code: str
    until: float


def create_login_code(db: Database, owner: str, lifetime: float = CODE_SECONDS) -> LoginCode:
    """A code that lets one browser in as `owner`, with every scope: for who can run commands on this machine."""
    text = "".join(secrets.choice(_CODE_CHARS) for _ in range(_CODE_LENGTH))
    scopes = [str(scope) for scope in Scope]
    until = sessions.insert_login_code(
        db,
        _code_digest(text),
        owner=owner,
        scopes=scopes,
        lifetime=lifetime,
        audit=entry("login_code_created", owner),
    )
    return LoginCode("-".join(text[start : start + 5] for start in range(0, _CODE_LENGTH, 5)), until)


def log_in(db: Database, code: str) -> tuple[str, SessionRow] | None:
    """A new cookie value and its session, the code being used up; None where it is unknown, used or expired."""
    if len(code) > 100:
        return None
    value = COOKIE_PREFIX + secrets.token_urlsafe(32)
    row = sessions.exchange_login_code(
        db,
        _code_digest(code),
        "s" + secrets.token_hex(8),
        _digest(value),
        LONGEST_SECONDS,
        audit=entry("login", ""),
    )
    return None if row is None else (value, row)


def session_principal(db: Database, value: str) -> Principal | None:
    """Whom the cookie speaks for; None where it is unknown, or its session is over."""
    if not value.startswith(COOKIE_PREFIX) or len(value) > 100:
        return None
    row = sessions.valid_session(db, _digest(value), IDLE_SECONDS, _TOUCH_SECONDS)
    if row is None:
        return None
    return Principal(row.id, row.owner, frozenset(row.scopes), "session", csrf_of(value))


def csrf_of(cookie_value: str) -> str:
    """The session's token for unsafe requests: who has it has read a page of ours, which other origins cannot."""
    return hmac.new(cookie_value.encode(), b"csrf", hashlib.sha256).hexdigest()


def log_out(db: Database, principal: Principal) -> None:
    """Ends the principal's session: the cookie is worth nothing from then on, and its streams end."""
    sessions.revoke_session(db, principal.token_id, entry("logout", principal.owner))


class Throttle:
    """Refuses an address after too many failed logins, for a while. Counts in this process alone.

    A code cannot be guessed anyway; this keeps the database from being asked all the time.
    """

    MOST_FAILURES = 10
    SECONDS = 60.0
    _MOST_ADDRESSES = 10_000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._mutex = threading.Lock()

    def refused_for(self, address: str) -> float:
        """Seconds until the address may try again; 0: now."""
        with self._mutex:
            recent = self._recent(address)
            return (
                recent[-self.MOST_FAILURES] + self.SECONDS - self._clock()
                if len(recent) >= self.MOST_FAILURES
                else 0.0
            )

    def failed(self, address: str) -> None:
        """Counts a failure; the addresses that failed longest ago are forgotten first."""
        with self._mutex:
            self._failures[address] = [*self._recent(address), self._clock()]
            self._failures.move_to_end(address)
            while len(self._failures) > self._MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = self._clock() - self.SECONDS
        return [at for at in self._failures.get(address, ()) if at > since]


def _code_digest(code: str) -> str:
    return _digest(re.sub(r"[\s-]", "", code).upper())


def _digest(secret: str) -> str:
    # 100 and more random bits need no salt and no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
