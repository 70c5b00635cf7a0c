"""`sostenuto tokens`: who may use the HTTP API, and for what."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import opened
from jobs.cli.text import to_json
from jobs.errors import UsageError

DEFAULT_LIFETIME = "90d"
NEVER = "never"


def create(
    owner: Annotated[
        str | None, typer.Option("--owner", help="Whose jobs it sees and submits. Default: this CLI's.")
    ] = None,
    scopes: Annotated[
        str | None,
        typer.Option("--scopes", metavar="NAMES", help="With commas; default: all but admin."),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="SPAN", help="Valid for 12h, 90d …, or: never.")
    ] = DEFAULT_LIFETIME,
    json: options.Json = False,
) -> None:
    """Make a token for the HTTP API. It is shown once: only its hash is stored."""
    from jobs.api.tokens import DEFAULT_SCOPES, create_token, token_dict

    named = DEFAULT_SCOPES if scopes is None else [part.strip() for part in scopes.split(",") if part.strip()]
    lifetime = None if expires == NEVER else _span(expires)
    with opened() as installation:
        given = installation.settings.owner if owner is None else owner
        token, row = create_token(installation.db, given, named, lifetime, installation.settings.owner)
    if json:
        print(to_json({"token": token, **token_dict(row)}))
        return
    print(token)
    render.note(f"id {row.id}, for {row.owner}: {', '.join(row.scopes)}. It is not shown again.")


def login_code(json: options.Json = False) -> None:
    """Make a one-time code for the page's login. It lets one browser in, as this CLI's owner, with every right."""
    from jobs.api.sessions import create_login_code
    from jobs.views import iso

    with opened() as installation:
        made = create_login_code(installation.db, installation.settings.owner)
    if json:
        print(to_json({"code": made.code, "expires_at": iso(made.until)}))
        return
    print(made.code)
    render.note(f"for the login page; usable once, until {render.moment(made.until)}")


def list_tokens(json: options.Json = False) -> None:
    """List the tokens. Never the secrets; also those that are revoked or expired."""
    from jobs.api.tokens import token_dict
    from storage import accounts

    with opened() as installation:
        rows = accounts.list_tokens(installation.db)
        now = installation.db.clock()
    if json:
        print(to_json({"tokens": [token_dict(row) for row in rows]}))
    elif rows:
        render.table(
            ["ID", "OWNER", "STATE", "EXPIRES", "SCOPES"],
            [
                [
                    row.id,
                    row.owner,
                    "revoked"
                    if row.revoked_at is not None
                    else "expired"
                    if row.expires_at is not None and row.expires_at <= now
                    else "valid",
                    NEVER if row.expires_at is None else render.moment(row.expires_at),
                    ", ".join(row.scopes),
                ]
                for row in rows
            ],
        )
    else:
        render.note("no tokens")


def revoke(
    token: Annotated[
        str, typer.Argument(metavar="ID", help="The token's id, from the list.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Revoke a token at once. Streams that it opened end too."""
    from jobs.api import tokens

    with opened() as installation:
        row = tokens.revoke(installation.db, token, installation.settings.owner)
    if json:
        print(to_json(tokens.token_dict(row)))
    else:
        print(row.id)


def _span(text: str) -> float:
    from jobs.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--expires: {error}", hint=f"or: {NEVER}") from None
