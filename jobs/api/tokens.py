"""API tokens: who a request speaks for and what it may do. Shown once when made; only their hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from jobs.audit import entry
from jobs.errors import NotFound, UsageError, did_you_mean
from jobs.views import iso
from storage import accounts
from storage.accounts import TokenRow
from storage.engine import Database

PREFIX = "sos_"
LONGEST_LIFETIME = 10 * 366 * 86_400.0
MAX_OWNER_CHARS = 200  # as the setting `owner`


class Scope(StrEnum):
    """What a token allows. `admin` allows everything, on everyone's jobs."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    METRICS_READ = "metrics:read"
    ADMIN = "admin"


DEFAULT_SCOPES = (Scope.JOBS_READ, Scope.JOBS_WRITE, Scope.FILES_READ, Scope.FILES_WRITE)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request speaks for. `sees` is the owner whose jobs it may touch, None: everyone's."""

    token_id: str  # of the token, or of the session
    owner: str
    scopes: frozenset[str]
    kind: Literal["token", "session"] = "token"
    csrf: str | None = None  # what unsafe requests of a session must send as X-CSRF-Token

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def sees(self) -> str | None:
        return None if self.is_admin else self.owner

    def may_grant(self, scopes: Iterable[str]) -> bool:
        """Nobody gives more than they have."""
        return self.is_admin or self.scopes.issuperset(scopes)

    def may(self, scope: Scope) -> bool:
        return self.is_admin or scope in self.scopes


def create_token(
    db: Database, owner: str, scopes: Iterable[str], lifetime: float | None, actor: str | None = None
) -> tuple[str, TokenRow]:
    """A new token and its stored row. This is the only time that the token itself is known.

    `lifetime` is in seconds, None: until it is revoked. Raises UsageError for an unknown scope, an owner that is
    empty or too long, a lifetime that is not positive or longer than ten years.
    """
    named = list(dict.fromkeys(scopes))
    known = [str(scope) for scope in Scope]
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known) or f"allowed are: {', '.join(known)}"
            raise UsageError(f"there is no scope {name!r}", hint=hint)
    if not named:
        raise UsageError("a token needs a scope", hint=f"allowed are: {', '.join(known)}")
    if not owner.strip() or len(owner) > MAX_OWNER_CHARS:
        raise UsageError(f"an owner has 1 to {MAX_OWNER_CHARS} characters")
    if lifetime is not None and not 0 < lifetime <= LONGEST_LIFETIME:
        raise UsageError("a token lives for more than nothing and at most ten years", hint="or: never")
    token = PREFIX + secrets.token_urlsafe(32)
    token_id = secrets.token_hex(5)
    noted = entry("token_created", actor or owner, token=token_id, owner=owner, scopes=named)
    row = accounts.insert_token(
        db, token_id, _digest(token), owner=owner, scopes=named, lifetime=lifetime, audit=noted
    )
    return token, row


def authenticate(db: Database, token: str) -> Principal | None:
    """Whom the token speaks for; None where it is unknown, expired or revoked."""
    if not token.startswith(PREFIX) or len(token) > 100:
        return None
    row = accounts.valid_token(db, _digest(token))
    return None if row is None else Principal(row.id, row.owner, frozenset(row.scopes))


def revoke(db: Database, token_id: str, actor: str = "") -> TokenRow:
    """From now on no request with this token is answered. Raises NotFound."""
    row = accounts.revoke_token(db, token_id, entry("token_revoked", actor, token=token_id))
    if row is None:
        raise NotFound(f"there is no token {token_id}", hint="list them with: sostenuto tokens list")
    return row


def token_dict(row: TokenRow) -> dict[str, Any]:
    """For JSON, with times as ISO 8601 in UTC."""
    times = ("created_at", "expires_at", "revoked_at")
    told = {name: None if getattr(row, name) is None else iso(getattr(row, name)) for name in times}
    return {"id": row.id, "owner": row.owner, "scopes": row.scopes, **told}


def _digest(token: str) -> str:
    # 256 random bits need no salt and no slow hash: there is nothing to guess.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
