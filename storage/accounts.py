"""Tokens of the HTTP API, kept as hashes. Whether one is valid is asked of the database's clock at each request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from storage.audit import AuditRecord, add_record
from storage.engine import Database, wall_clock
from storage.models import api_tokens
from storage.text import clean_text


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret. Times are epoch seconds; `expires_at` None: never."""

    id: str
    owner: str
    scopes: list[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None


_COLUMNS = [api_tokens.c[name] for name in TokenRow.__slots__]
_VALID = sa.and_(
    api_tokens.c.revoked_at.is_(None),
    sa.or_(api_tokens.c.expires_at.is_(None), api_tokens.c.expires_at > wall_clock()),
)


def insert_token(
    db: Database,
    token_id: str,
    digest: str,
    *,
    owner: str,
    scopes: list[str],
    lifetime: float | None,
    audit: AuditRecord,
) -> TokenRow:
    """Stores a token that is valid for `lifetime` seconds from now, None: until it is revoked."""
    with db.write() as conn:
        add_record(conn, audit)
        row = conn.execute(
            sa.insert(api_tokens)
            .values(
                id=token_id,
                hash=digest,
                owner=clean_text(owner),
                scopes=scopes,
                created_at=wall_clock(),
                expires_at=None if lifetime is None else wall_clock() + lifetime,
            )
            .returning(*_COLUMNS)
        )
        return TokenRow(**row.mappings().one())


def valid_token(db: Database, digest: str) -> TokenRow | None:
    """The token with this hash, unless it was revoked or has expired."""
    with db.read() as conn:
        row = conn.execute(sa.select(*_COLUMNS).where(api_tokens.c.hash == digest, _VALID))
        found = row.mappings().one_or_none()
    return None if found is None else TokenRow(**found)


def valid_token_ids(db: Database, token_ids: Collection[str]) -> set[str]:
    """Those of the tokens that are still valid."""
    with db.read() as conn:
        return set(
            conn.execute(sa.select(api_tokens.c.id).where(api_tokens.c.id.in_(token_ids), _VALID)).scalars()
        )


def list_tokens(db: Database) -> list[TokenRow]:
    """Every token, oldest first, the revoked and expired ones too."""
    statement = sa.select(*_COLUMNS).order_by(api_tokens.c.created_at, api_tokens.c.id)
    with db.read() as conn:
        return [TokenRow(**row) for row in conn.execute(statement).mappings()]


def revoke_token(db: Database, token_id: str, audit: AuditRecord) -> TokenRow | None:
    """Makes the token invalid from this commit on; None where there is none. A second time changes nothing."""
    with db.write() as conn:
        row = conn.execute(
            sa.update(api_tokens)
            .where(api_tokens.c.id == clean_text(token_id))
            .values(revoked_at=sa.func.coalesce(api_tokens.c.revoked_at, wall_clock()))
            .returning(*_COLUMNS)
        )
        found = row.mappings().one_or_none()
        if found is not None:
            add_record(conn, audit)
    return None if found is None else TokenRow(**found)
