"""Login codes, cookies and tokens are known to their holders alone: wherever else they could come to, they are not."""

from __future__ import annotations

import json
import logging

import pytest
import sqlalchemy as sa

from jobs.api.sessions import COOKIE, create_login_code
from jobs.api.tokens import Scope, create_token
from storage.engine import Database
from storage.models import metadata
from tests.api.conftest import Api, api, submitted
from tests.api.test_sessions import CSRF
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation
from tests.waiting import wait_until

__all__ = ["api", "cli", "db", "folder", "installation"]


def _database(db: Database) -> str:
    """Every row of every table: history, audit log, tokens, sessions, codes."""
    shown = []
    with db.read() as conn:
        for table in metadata.sorted_tables:
            shown += [json.dumps(dict(row._mapping), default=str) for row in conn.execute(sa.select(table))]
    return "\n".join(shown)


def test_credentials_come_to_no_sink(
    api: Api,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Good ones are used for everything, put where they do not belong, and there when the server breaks."""
    caplog.set_level(logging.DEBUG)
    code, used = create_login_code(api.db, "ann").code, create_login_code(api.db, "ann").code
    token, row = create_token(api.db, "ann", [str(scope) for scope in Scope], None)
    browser, program, nobody = api.bearer(None), api.bearer(token), api.bearer(None)
    for asker in (browser, program, nobody):
        asker.headers["Connection"] = "close"  # a server that broke ends a connection at any time
    logged_in = browser.post("/login", json={"code": used})
    browser.headers[CSRF] = logged_in.json()["csrf_token"]
    cookie = browser.cookies[COOKIE]
    made = program.post("/api/tokens", json={"owner": "bob"}).json()["token"]
    secrets = [code, used, code.replace("-", ""), used.replace("-", ""), token, cookie, made]
    told: list[str] = []
    for asker in (browser, program):
        job = submitted(asker, "Do it.")
        here = job["links"]["self"]
        asker.post(f"{here}/comments", json={"text": "mind this"})
        asker.put(f"{here}/files/input/a.txt", content=b"a")
        asker.post(f"{here}/cancel")
        pages = ["/", "/new", f"/jobs/{job['id']}", here, f"{here}/history", f"{here}/events", "/api/jobs"]
        told += [asker.get(path).text for path in [*pages, "/api/tokens", "/api/audit", "/metrics"]]
    for secret in (code, token, cookie):  # where they do not belong
        for asker in (nobody, program):
            asker.get(f"/api/jobs/{secret}")
            asker.get("/api/jobs", params={"q": secret, "token": secret})
            asker.get("/api/jobs", headers={"Host": f"{secret}.example"})
        nobody.post("/login", json={"code": secret + "x"})
        nobody.get("/api/jobs", headers={"Authorization": f"Basic {secret}"})

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the server breaks")

    monkeypatch.setattr("jobs.views.find_jobs", broken)
    told += [asker.get("/api/jobs").text for asker in (program, browser)]
    assert "Unexpected" in told[-1]
    wait_until(lambda: "UnknownHost" in _database(api.db) or _database(api.db).count('"denied"') >= 10)
    out, err = capfd.readouterr()
    ours = [record for record in caplog.records if not record.name.startswith("http")]  # nor the clients' own
    logged = "\n".join([*(caplog.handler.format(record) for record in ours), out, err])
    stored = _database(api.db)
    assert row.id in stored
    assert "the server breaks" in logged
    for secret in secrets:
        assert secret not in stored
        assert secret not in logged
        assert [text for text in told if secret in text] == []
