"""Who is let in: hosts, origins, tokens, scopes, other people's jobs; and what every answer carries."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute

from jobs.api.application import OPENAPI_PATH, create_api
from jobs.api.gate import OPEN_PATHS, OPEN_PREFIX, is_page
from jobs.api.sessions import COOKIE
from jobs.api.tokens import Scope, create_token, revoke
from storage.engine import Database
from storage.models import api_tokens
from tests import factories
from tests.api.conftest import Api, problem, submitted
from tests.api.test_sessions import logged_in


def _routes(api: Api) -> list[tuple[str, str]]:
    """Every (method, path) that the application knows, with an id and a file name filled in."""
    document = create_api(api.installation).openapi()
    found = [
        (method.upper(), re.sub(r"\{path\}", "input/a.txt", path))
        for path, methods in document["paths"].items()
        for method in methods
    ]
    assert len(found) > 20
    return [*found, ("GET", OPENAPI_PATH)]


def _page_routes(api: Api) -> list[tuple[str, str]]:
    """Every (method, path) of the page."""
    return [
        (method, route.path)
        for route in _flat(create_api(api.installation))
        if not route.include_in_schema or is_page(route.path)
        for method in sorted(route.methods or ())
    ]


def _flat(router: Any) -> list[APIRoute]:
    """Every route, those of included routers too, which the framework keeps as routers."""
    found: list[APIRoute] = []
    for route in router.routes:
        if isinstance(route, APIRoute):
            found.append(route)
        elif (included := getattr(route, "original_router", None)) is not None:
            found += _flat(included)
    return found


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def test_the_document_names_every_route(api: Api) -> None:
    """What the tests below enumerate is all there is."""
    made = create_api(api.installation)
    known = {route.path.replace(":path}", "}") for route in _flat(made)}
    documented = set(made.openapi()["paths"])
    assert documented <= known
    hidden = known - documented
    assert {path for path in hidden if not is_page(path)} == set()
    assert {"/", "/new", "/bulk", "/jobs/{job_id}", "/jobs/{job_id}/live"} <= hidden
    others = {getattr(route, "path", None) for route in made.routes if not isinstance(route, APIRoute)}
    assert {path for path in others if path is not None} == {OPENAPI_PATH}


def _every_route(api: Api) -> list[tuple[str, str]]:
    """Those of the page too, and some that are none, with ids filled in."""
    others = [("GET", "/"), ("GET", "/docs"), ("POST", "/x"), ("GET", "/api"), ("HEAD", "/api/jobs")]
    return [
        (method, re.sub(r"\{[^}]*\}", "x", path))
        for method, path in [*_routes(api), *_page_routes(api), *others]
    ]


def test_every_route_needs_credentials(api: Api) -> None:
    """None, a wrong token, an expired one, a revoked one, the cookie of a session that is over."""
    revoked, row = create_token(api.db, "local", ["admin"], None)
    revoke(api.db, row.id)
    expired, row = create_token(api.db, "local", ["admin"], 3600)
    with api.db.write() as conn:
        conn.execute(sa.update(api_tokens).where(api_tokens.c.id == row.id).values(expires_at=1))
    over = logged_in(api)
    cookie = f"{COOKIE}={over.cookies[COOKIE]}"
    over.post("/logout")
    clients = [api.bearer(token) for token in (None, "sos_" + "a" * 43, expired, revoked)]
    clients.append(api.bearer(None))
    clients[-1].headers["Cookie"] = cookie
    for method, path in _every_route(api):
        for client in clients:
            answer = client.request(method, path)
            if _is_open(path):
                assert answer.status_code in (200, 404, 422, 429), (method, path)
                continue
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            if method == "HEAD":
                continue
            if is_page(path) and method == "GET":
                assert 'action="/login"' in answer.text
            else:
                problem(answer, 401, "Unauthorized")
    assert {path for _, path in _routes(api) if _is_open(path)} == {"/healthz", "/login"}


def test_no_route_answers_a_foreign_host_or_origin_or_a_cookie_without_its_token(api: Api) -> None:
    admin, browser = api.client("root", "admin"), logged_in(api)
    browser.headers.pop("X-CSRF-Token")
    asked = 0
    for method, path in _every_route(api):
        answer = admin.request(method, path, headers={"Host": "evil.example"})
        assert answer.status_code == 421, (method, path)
        if method in ("GET", "HEAD"):
            continue
        asked += 1
        problem(admin.request(method, path, headers={"Origin": "https://evil.example"}), 403, "ForeignOrigin")
        if not _is_open(path):
            problem(browser.request(method, path), 403, "CsrfTokenMissing")
    assert asked > 10


@pytest.mark.parametrize("header", ["", "Bearer", "Basic c29zOnNvcw==", "sos_x", "Bearer a b"])
def test_other_authorization_is_none(api: Api, header: str) -> None:
    answer = api.bearer(None).get("/api/jobs", headers={"Authorization": header})
    problem(answer, 401, "Unauthorized")


def test_another_persons_job_is_not_there_on_any_route(api: Api) -> None:
    job = submitted(api.client("ann"))
    stranger, admin = api.client("bob"), api.client("root", "admin")
    before = factories.job_now(api.db, job["id"])
    asked = 0
    for method, path in _routes(api):
        if "{job_id}" not in path:
            continue
        asked += 1
        body: dict[str, Any] = {"json": {"text": "hello"}} if path.endswith(("comments", "reply")) else {}
        mine = path.replace("{job_id}", job["id"])
        nobodys = path.replace("{job_id}", "01900000-0000-7000-8000-000000000000")
        theirs, missing = stranger.request(method, mine, **body), stranger.request(method, nobodys, **body)
        problem(theirs, 404, "JobNotFound")
        problem(missing, 404, "JobNotFound")
        assert theirs.text.replace(job["id"], "ID") == missing.text.replace(nobodys.split("/")[3], "ID")
    assert asked > 15
    assert stranger.get("/api/jobs").json()["items"] == []
    assert stranger.get("/api/jobs", params={"parent": job["id"]}).json()["items"] == []
    assert factories.job_now(api.db, job["id"]) == before
    assert admin.get(f"/api/jobs/{job['id']}").json()["owner"] == "ann"


def _needed(method: str, path: str) -> Scope:
    """The one scope that a route asks for."""
    if path.startswith(("/api/tokens", "/api/audit")):
        return Scope.ADMIN
    if path == "/metrics":
        return Scope.METRICS_READ
    if "/files" in path or path.endswith("/workspace.zip"):
        return Scope.FILES_READ if method == "GET" else Scope.FILES_WRITE
    return Scope.JOBS_READ if method == "GET" else Scope.JOBS_WRITE


def test_a_token_does_no_more_than_its_scopes(api: Api) -> None:
    job_id = submitted(api.client())["id"]
    clients = {scope: api.client("local", scope) for scope in Scope if scope is not Scope.ADMIN}
    for method, path in _routes(api):
        if _is_open(path) or path in (OPENAPI_PATH, "/logout") or path.endswith("/events"):
            continue
        for scope, client in clients.items():
            body: dict[str, Any] = {"json": {"text": "hello"}} if path.endswith(("comments", "reply")) else {}
            if path == "/api/tokens" and method == "POST":
                body = {"json": {}}
            answer = client.request(method, path.replace("{job_id}", job_id), **body)
            allowed = scope is _needed(method, path)
            assert (answer.status_code != 403) == allowed, (method, path, scope, answer.text)


def test_a_host_name_that_is_not_ours_is_refused(api: Api) -> None:
    client = api.client()
    for host in (
        "evil.example",
        "127.0.0.1.evil.example:80",
        "",
        "localhost.",
        "127.0.0.1@evil.example",
        "[::1",
    ):
        problem(client.get("/healthz", headers={"Host": host}), 421, "UnknownHost")
    for host in ("localhost", "127.0.0.1:1", "LOCALHOST:8787", "[::1]:8787"):
        assert client.get("/api/jobs", headers={"Host": host}).status_code == 200


def test_a_page_of_another_origin_changes_nothing(api: Api) -> None:
    client = api.client()
    for origin in (
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        api.url + ".evil.example",
        "http://[x",
    ):
        answer = client.post("/api/jobs", json={"instruction": "x"}, headers={"Origin": origin})
        problem(answer, 403, "ForeignOrigin")
        assert (
            "access-control-allow-origin" not in client.get("/api/jobs", headers={"Origin": origin}).headers
        )
    assert client.get("/api/jobs").json()["items"] == []
    assert client.post("/api/jobs", json={"instruction": "x"}, headers={"Origin": api.url}).status_code == 201


def test_no_credentials_in_urls(api: Api) -> None:
    token, _ = create_token(api.db, "local", ["admin"], None)
    for query in (f"access_token={token}", f"token={token}", f"limit={token}", "API_KEY=x"):
        for client in (api.bearer(None), api.bearer(token)):
            answer = client.get(f"/api/jobs?{query}")
            problem(answer, 400, "CredentialsInUrl")
            assert token not in answer.text


def test_every_answer_says_that_nobody_is_to_guess_its_type(api: Api) -> None:
    client = api.client()
    job_id = submitted(client)["id"]
    for path in (
        "/healthz",
        "/api/jobs",
        f"/api/jobs/{job_id}",
        "/nothing",
        f"/api/jobs/{job_id}/workspace.zip",
    ):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in headers or headers["server"] == "uvicorn"  # `sostenuto web` leaves it out


def test_unknown_paths_methods_and_bodies_are_problems(api: Api) -> None:
    client = api.client()
    problem(client.get("/nothing"), 404, "NotFound")
    assert problem(client.put("/api/jobs"), 405, "MethodNotAllowed")
    problem(
        client.post("/api/jobs", content=b"x", headers={"Content-Type": "text/plain"}),
        415,
        "UnsupportedMediaType",
    )
    problem(
        client.post("/api/jobs", content=b"{", headers={"Content-Type": "application/json"}),
        422,
        "InvalidRequest",
    )
    problem(client.get("/api/jobs?limit=0"), 422, "InvalidRequest")
    problem(client.get("/api/jobs?state=runing"), 422, "InvalidRequest")
    secret = "s3cr3t-value"
    wrong = client.post("/api/jobs", json={"instruction": "x", "colour": secret, "priority": secret})
    document = problem(wrong, 422, "InvalidRequest")
    assert [entry["loc"][-1] for entry in document["errors"]] == ["priority", "colour"]
    assert secret not in wrong.text


def test_a_body_that_is_too_large_is_refused_while_it_comes(api: Api) -> None:
    client = api.client()
    block = b" " * (1 << 20)
    headers = {"Content-Type": "application/json"}
    declared = client.post("/api/jobs", content=block * 17, headers=headers)
    problem(declared, 413, "BodyTooLarge")
    streamed = client.post("/api/jobs", content=(block for _ in range(17)), headers=headers)
    problem(streamed, 413, "BodyTooLarge")
    assert client.get("/api/jobs").json()["items"] == []


def test_without_its_database_it_says_so(api: Api) -> None:
    client = api.client()
    assert client.get("/readyz").json() == {"status": "ok", "database": "ok", "broker": "unreachable"}
    with pytest.MonkeyPatch.context() as patch:

        def broken(*_: object) -> None:
            from storage.errors import DatabaseUnavailable

            raise DatabaseUnavailable("it is away")

        patch.setattr(Database, "read", broken)
        answer = client.get("/api/jobs")
    assert problem(answer, 503, "DatabaseUnavailable")["detail"] == "it is away"
    assert answer.headers["retry-after"]
    assert client.get("/api/jobs").status_code == 200
