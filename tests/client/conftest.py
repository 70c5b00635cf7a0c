"""Clients of both kinds against a real server, directly and through a proxy that cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobs.api.tokens import Scope, create_token
from jobs.installation import Installation
from sostenuto import Sostenuto
from storage.engine import Database
from tests.api.conftest import serving
from tests.client.either import KINDS, make_client
from tests.client.proxy import Proxy
from tests.jobs.conftest import db, installation

__all__ = ["db", "installation"]


def token_for(db: Database, owner: str = "local", *scopes: str) -> str:
    """A token of all scopes but admin where none is named."""
    named = scopes or [scope for scope in Scope if scope is not Scope.ADMIN]
    return create_token(db, owner, named, None)[0]


@dataclass
class Served:
    """A server on a port, and clients of one kind."""

    installation: Installation
    url: str
    kind: str
    _closers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def db(self) -> Database:
        return self.installation.db

    def client(self, *scopes: str, owner: str = "local", **how: Any) -> Sostenuto:
        how = {"url": self.url, "token": token_for(self.db, owner, *scopes)} | how
        made = make_client(self.kind, **how)
        self._closers.append(made.close)
        return made

    def proxy(self) -> Proxy:
        port = urlsplit(self.url).port
        assert port is not None
        made = Proxy(port)
        self._closers.append(made.close)
        return made

    def close(self) -> None:
        for close in self._closers:
            close()


@pytest.fixture(params=KINDS)
def served(request: pytest.FixtureRequest, installation: Installation) -> Iterator[Served]:
    """On SQLite and on Postgres, for the synchronous and the asynchronous client."""
    for url in serving(installation):
        found = Served(installation, url, request.param)
        yield found
        found.close()
