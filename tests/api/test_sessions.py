"""Logging in with a one-time code: once, in time, not by guessing; cookies, CSRF tokens, and their end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobs.api.sessions import COOKIE, Throttle, create_login_code, csrf_of, log_in, session_principal
from jobs.api.tokens import Scope
from storage.engine import Database
from storage.models import login_codes, sessions
from tests import factories
from tests.api.conftest import Api, Client, problem, submitted
from tests.api.test_events import streaming
from tests.cli.conftest import Cli, cli, folder
from tests.jobs.conftest import db, installation

__all__ = ["cli", "db", "folder", "installation"]

CSRF = "X-CSRF-Token"


def logged_in(api: Api, owner: str = "local") -> Client:
    """A browser with a session; it sends its CSRF token with everything."""
    browser = api.bearer(None)
    answer = browser.post("/login", json={"code": create_login_code(api.db, owner).code})
    assert answer.status_code == 200, answer.text
    browser.headers[CSRF] = answer.json()["csrf_token"]
    return browser


def test_a_code_is_exchanged_for_a_session_of_its_owner(api: Api) -> None:
    browser = api.bearer(None)
    answer = browser.post("/login", json={"code": create_login_code(api.db, "ann").code})
    assert (answer.status_code, answer.json()["owner"]) == (200, "ann")
    assert set(answer.json()["scopes"]) == set(Scope)
    cookie = answer.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age="):
        assert attribute in cookie
    assert "Secure" not in cookie
    assert "Domain" not in cookie
    assert browser.get("/api/jobs").json()["items"] == []
    browser.headers[CSRF] = answer.json()["csrf_token"]
    assert submitted(browser)["owner"] == "ann"


def test_a_form_is_answered_with_the_page(api: Api) -> None:
    browser = api.bearer(None)
    assert 'name="code"' in browser.get("/login").text
    refused = browser.post("/login", data={"code": "<b>wrong</b>"})
    assert refused.status_code == 401
    assert "This code is not valid" in refused.text
    assert "wrong" not in refused.text
    shown = create_login_code(api.db, "ann").code.lower().replace("-", " ")
    done = browser.post("/login", data={"code": shown}, headers={"Origin": api.url})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert browser.get("/api/jobs").status_code == 200


def test_behind_a_proxy_with_tls_the_cookie_is_secure(api: Api) -> None:
    origin = api.url.replace("http:", "https:")
    code = create_login_code(api.db, "ann").code
    answer = api.bearer(None).post("/login", json={"code": code}, headers={"Origin": origin})
    assert "; Secure" in answer.headers["set-cookie"]


def test_a_code_is_used_once_also_by_two_at_the_same_time(db: Database) -> None:
    code = create_login_code(db, "ann").code
    ready, made = threading.Barrier(8), []

    def race() -> None:
        ready.wait(60)
        made.append(log_in(db, code))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([found for found in made if found is not None]) == 1
    assert log_in(db, code) is None
    with db.read() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(sessions)).scalar_one() == 1


def test_a_code_that_is_too_old_is_refused(db: Database) -> None:
    code = create_login_code(db, "ann").code
    with db.write() as conn:
        conn.execute(sa.update(login_codes).values(expires_at=login_codes.c.created_at - 1))
    assert log_in(db, code) is None


@pytest.mark.parametrize("wrong", ["", "-", "0" * 20, "a" * 9999, "\udcff\0", "é"])
def test_what_is_no_code_is_refused(db: Database, wrong: str) -> None:
    create_login_code(db, "ann")
    assert log_in(db, wrong) is None
    assert session_principal(db, wrong) is None
    assert session_principal(db, f"soss_{wrong}") is None


def test_who_guesses_is_refused_for_a_while(api: Api) -> None:
    browser = api.bearer(None)
    for _ in range(Throttle.MOST_FAILURES):
        problem(browser.post("/login", json={"code": "guess"}), 401, "LoginFailed")
    code = create_login_code(api.db, "ann").code
    answer = browser.post("/login", json={"code": code})
    problem(answer, 429, "TooManyLogins")
    assert 0 < int(answer.headers["retry-after"]) <= 61


def test_the_throttle_counts_by_address_and_forgets() -> None:
    now = [100.0]
    throttle = Throttle(lambda: now[0])
    for _ in range(Throttle.MOST_FAILURES):
        assert throttle.refused_for("a") == 0
        throttle.failed("a")
    assert throttle.refused_for("a") == Throttle.SECONDS
    assert throttle.refused_for("b") == 0
    now[0] += Throttle.SECONDS
    assert throttle.refused_for("a") == 0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"), (b"[]", "application/json"), (b'{"code": 1}', "application/json"),
        (b'{"code"', "application/json"), (b"\xff", "application/json"), (b"[" * 4000, "application/json"),
        (b"", "application/x-www-form-urlencoded"), (b"code", "application/x-www-form-urlencoded"),
        (b"&".join([b"a=b"] * 50), "application/x-www-form-urlencoded"), (b"\xff", "application/x-www-form-urlencoded"),
        (b"code=x", "text/plain"),
    ],
)  # fmt: skip
def test_a_login_without_a_code_is_refused(api: Api, body: bytes, kind: str) -> None:
    answer = api.bearer(None).post("/login", content=body, headers={"Content-Type": kind})
    problem(answer, 422, "InvalidRequest")


def test_a_long_login_is_not_read(api: Api) -> None:
    answer = api.bearer(None).post(
        "/login", content=b" " * 5000, headers={"Content-Type": "application/json"}
    )
    problem(answer, 413, "BodyTooLarge")


def test_unsafe_requests_of_a_session_need_its_csrf_token(api: Api) -> None:
    browser, other = logged_in(api), logged_in(api)
    token = browser.headers.pop(CSRF)
    assert browser.get("/api/jobs").status_code == 200
    wrongs: list[dict[str, str]] = [
        {},
        {CSRF: ""},
        {CSRF: "x"},
        {CSRF: str(other.headers[CSRF])},
        {CSRF: "0" * 64},
    ]
    for wrong in wrongs:
        problem(browser.post("/api/jobs", json={"instruction": "x"}, headers=wrong), 403, "CsrfTokenMissing")
        problem(browser.post("/logout", headers=wrong), 403, "CsrfTokenMissing")
    assert browser.get("/api/jobs").json()["items"] == []
    assert browser.post("/api/jobs", json={"instruction": "x"}, headers={CSRF: token}).status_code == 201


def test_a_token_that_does_not_hold_is_not_mended_by_a_cookie(api: Api) -> None:
    browser = logged_in(api)
    problem(browser.get("/api/jobs", headers={"Authorization": "Bearer sos_x"}), 401, "Unauthorized")
    problem(api.client().post("/logout"), 409, "NoSession")


def test_logging_out_ends_the_session_and_its_streams(api: Api) -> None:
    run = factories.running_job(api.db)
    browser, other = logged_in(api), logged_in(api)
    value = browser.cookies[COOKIE]
    with streaming(browser, run.job_id) as stream:
        assert next(stream).kind == "history"
        assert browser.post("/logout").status_code == 204
        assert list(stream) == []
    assert COOKIE not in browser.cookies
    problem(browser.get("/api/jobs"), 401, "Unauthorized")
    problem(api.bearer(None).get("/api/jobs", headers={"Cookie": f"{COOKIE}={value}"}), 401, "Unauthorized")
    assert other.get("/api/jobs").status_code == 200


@pytest.mark.parametrize("column", ["expires_at", "seen_at"])
def test_a_session_ends_when_it_is_too_old_or_was_not_used(db: Database, column: str) -> None:
    made = log_in(db, create_login_code(db, "ann").code)
    assert made is not None
    found = session_principal(db, made[0])
    assert found is not None
    assert (found.owner, found.kind, found.csrf) == ("ann", "session", csrf_of(made[0]))
    with db.write() as conn:
        conn.execute(sa.update(sessions).values({column: sessions.c.created_at - 2 * 86_400}))
    assert session_principal(db, made[0]) is None


def test_use_is_noted_now_and_then(db: Database) -> None:
    made = log_in(db, create_login_code(db, "ann").code)
    assert made is not None

    def seen() -> float:
        with db.read() as conn:
            return float(conn.execute(sa.select(sessions.c.seen_at)).scalar_one())

    first = seen()
    assert session_principal(db, made[0])
    assert seen() == first
    with db.write() as conn:
        conn.execute(sa.update(sessions).values(seen_at=first - 3600))
    assert session_principal(db, made[0])
    assert seen() >= first


def test_neither_codes_nor_cookies_are_stored(api: Api) -> None:
    code = create_login_code(api.db, "ann").code
    browser = api.bearer(None)
    csrf = browser.post("/login", json={"code": code}).json()["csrf_token"]
    with api.db.read() as conn:
        stored = repr([conn.execute(sa.select(table)).all() for table in (login_codes, sessions)])
    value = browser.cookies[COOKIE]
    for secret in (code, code.replace("-", ""), value, value[5:], csrf):
        assert secret not in stored


def test_the_page_has_a_strict_policy(api: Api) -> None:
    for path in ("/login", "/assets/login.js", "/", "/nothing"):
        policy = api.bearer(None).get(path).headers["content-security-policy"]
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        for name in ("script-src", "style-src", "img-src", "font-src", "connect-src", "form-action"):
            assert directives[name] == "'self'"
        for name in ("default-src", "base-uri", "frame-ancestors"):
            assert directives[name] == "'none'"


def test_the_command_makes_a_code(cli: Cli, folder: Path) -> None:
    made = cli("tokens", "login-code", "--json").data
    plain = cli("tokens", "login-code")
    assert plain.out.count("\n") == 1
    database = Database(f"sqlite:///{folder}/sostenuto-data/sostenuto.db")
    for code in (made["code"], plain.out.strip()):
        found = log_in(database, code)
        assert found is not None
        assert found[1].owner == "local"
    database.close()
