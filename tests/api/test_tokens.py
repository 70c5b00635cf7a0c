"""API tokens: shown once, hashed at rest, scoped, expiring, revocable at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from jobs.api.tokens import DEFAULT_SCOPES, Principal, Scope, authenticate, create_token, revoke
from jobs.errors import NotFound, UsageError
from storage import accounts
from storage.engine import Database
from storage.models import api_tokens
from tests.cli.conftest import Cli, cli, folder
from tests.storage.conftest import db

__all__ = ["cli", "db", "folder"]


def test_a_token_speaks_for_its_owner_within_its_scopes(db: Database) -> None:
    token, row = create_token(db, "ann", ["jobs:read", "files:read"], 60)
    principal = authenticate(db, token)
    assert principal == Principal(row.id, "ann", frozenset({"jobs:read", "files:read"}))
    assert principal is not None
    assert principal.sees == "ann"
    assert [scope for scope in Scope if principal.may(scope)] == [Scope.JOBS_READ, Scope.FILES_READ]


def test_an_administrator_sees_everyone_and_may_all(db: Database) -> None:
    token, _ = create_token(db, "root", ["admin"], None)
    principal = authenticate(db, token)
    assert principal is not None
    assert principal.sees is None
    assert all(principal.may(scope) for scope in Scope)


def test_tokens_are_long_prefixed_and_never_stored(db: Database) -> None:
    made = [create_token(db, "ann", ["jobs:read"], None)[0] for _ in range(3)]
    assert len(set(made)) == 3
    assert all(token.startswith("sos_") and len(token) >= 4 + 43 for token in made)
    with db.read() as conn:
        stored = repr(conn.execute(sa.select(api_tokens)).all())
    assert not any(token in stored or token[4:] in stored for token in made)


def test_a_revoked_token_is_refused_from_then_on(db: Database) -> None:
    token, row = create_token(db, "ann", ["jobs:read"], None)
    other, _ = create_token(db, "ann", ["jobs:read"], None)
    first = revoke(db, row.id)
    assert authenticate(db, token) is None
    assert authenticate(db, other) is not None
    assert revoke(db, row.id) == first, "a second time changes nothing"
    with pytest.raises(NotFound):
        revoke(db, "nobody")


def test_an_expired_token_is_refused(db: Database) -> None:
    token, row = create_token(db, "ann", ["jobs:read"], 3600)
    assert accounts.valid_token_ids(db, [row.id, "other"]) == {row.id}
    with db.write() as conn:
        conn.execute(sa.update(api_tokens).values(expires_at=api_tokens.c.created_at - 1))
    assert authenticate(db, token) is None
    assert accounts.valid_token_ids(db, [row.id]) == set()


@pytest.mark.parametrize(
    "wrong", ["", "sos_", "sos_x", "x", "sos_" + "é" * 43, "sos_" + "a" * 9999, "sos_\udcff\0"]
)
def test_what_is_no_token_is_refused(db: Database, wrong: str) -> None:
    create_token(db, "ann", ["jobs:read"], None)
    assert authenticate(db, wrong) is None


@pytest.mark.parametrize(
    ("owner", "scopes", "lifetime", "message"),
    [
        ("ann", ["jobs:raed"], None, "there is no scope"),
        ("ann", [], None, "needs a scope"),
        (" ", ["admin"], None, "an owner has"),
        ("a" * 201, ["admin"], None, "an owner has"),
        ("ann", ["admin"], 0, "more than nothing"),
        ("ann", ["admin"], 1e12, "at most ten years"),
    ],
)
def test_what_no_token_is_made_of(
    db: Database, owner: str, scopes: list[str], lifetime: float | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        create_token(db, owner, scopes, lifetime)
    assert accounts.list_tokens(db) == []


def test_the_commands(cli: Cli, folder: Path) -> None:
    made = cli(
        "tokens", "create", "--owner", "ann", "--scopes", "jobs:read, files:read", "--expires", "2d", "--json"
    )
    token, token_id = made.data["token"], made.data["id"]
    assert (made.data["owner"], made.data["scopes"]) == ("ann", ["jobs:read", "files:read"])
    plain = cli("tokens", "create", "--expires", "never")
    assert plain.out.startswith("sos_")
    assert plain.out.count("\n") == 1, "a script takes the whole output as the token"
    listed = cli("tokens", "list", "--json")
    assert [row["owner"] for row in listed.data["tokens"]] == ["ann", "local"]
    assert listed.data["tokens"][1]["scopes"] == list(DEFAULT_SCOPES)
    assert listed.data["tokens"][1]["expires_at"] is None
    assert token not in listed.out + cli("tokens", "list").out
    assert cli("tokens", "revoke", token_id).out == f"{token_id}\n"
    assert [line.split("\t")[2] for line in cli("tokens", "list").out.splitlines()] == ["revoked", "valid"]
    database = Database(f"sqlite:///{folder}/sostenuto-data/sostenuto.db")
    assert authenticate(database, token) is None
    assert authenticate(database, plain.out.strip()) is not None
    database.close()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "--expires", "soon"], 2, "--expires: 'soon' is not a span of time"),
        (["create", "--scopes", "job:read"], 2, "did you mean 'jobs:read'?"),
        (["revoke", "zzz"], 3, "there is no token zzz"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, arguments: list[str], code: int, message: str) -> None:
    outcome = cli("tokens", *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
