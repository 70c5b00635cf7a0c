"""The API through a real server on loopback, on each database; clients with tokens of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import uvicorn

from jobs.api.application import create_app
from jobs.api.tokens import Scope, create_token
from jobs.installation import Installation
from storage.engine import Database
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation
from tests.waiting import wait_until

__all__ = ["cli", "db", "folder", "installation"]

Client = httpx2.Client


@dataclass
class Api:
    """A running server and who may ask it."""

    installation: Installation
    url: str
    _clients: list[Client] = field(default_factory=list)

    @property
    def db(self) -> Database:
        return self.installation.db

    def client(self, owner: str = "local", *scopes: str, base_url: str | None = None) -> Client:
        """A client with a token of the owner's, of all scopes but admin where none is named."""
        named = scopes or [scope for scope in Scope if scope is not Scope.ADMIN]
        token, _ = create_token(self.db, owner, named, None)
        return self.bearer(token, base_url=base_url)

    def bearer(self, token: str | None, base_url: str | None = None) -> Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        client = Client(base_url=base_url or self.url, headers=headers, timeout=60, trust_env=False)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


def serving(installation: Installation) -> Iterator[str]:
    """A uvicorn of this process; gives its URL."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(installation),
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    wait_until(lambda: server.started, reason="the server's start: uvicorn has no other signal of it")
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    bound.close()


@pytest.fixture
def api(installation: Installation) -> Iterator[Api]:
    """The server, on SQLite and on Postgres."""
    for url in serving(installation):
        found = Api(installation, url)
        yield found
        found.close()


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, which must have this status and code."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), (
        answer.text
    )
    document: dict[str, Any] = answer.json()
    assert document["code"] == code, document
    assert document["status"] == status
    assert document["detail"]
    assert document["title"]
    assert document["type"].startswith("urn:sostenuto:problem:")
    return document


def submitted(client: Client, instruction: str = "Do it.", **more: Any) -> dict[str, Any]:
    """A job, just submitted."""
    answer = client.post("/api/jobs", json={"instruction": instruction, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found
