"""The audit log: one record for each thing that matters, in its own transaction, never changed, never too long."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.api.denials import Denial, DenialLog
from jobs.api.sessions import create_login_code
from jobs.api.tokens import create_token, revoke
from jobs.audit import Source, coming_from, entry
from jobs.settings import Settings
from storage import audit, registry
from storage.audit import LONGEST_TEXT, AuditRecord, AuditRow, add_records, list_records, remove_old
from storage.engine import Database, wall_clock
from storage.errors import IllegalTransition
from storage.models import audit_log
from tests import factories
from tests.api.conftest import Api, problem, submitted
from tests.api.test_sessions import logged_in
from tests.cli.conftest import Cli, cli, folder
from tests.jobs.conftest import db, installation
from tests.waiting import wait_until

__all__ = ["cli", "db", "folder", "installation"]


def _all(db: Database, **only: Any) -> list[AuditRow]:
    """Oldest first."""
    return list_records(db, 1000, **only)[::-1]


def _kinds(db: Database, job_id: str) -> list[tuple[str, str, str]]:
    return [(row.kind, row.actor, row.via) for row in _all(db, job_id=job_id)]


def test_what_a_token_does_to_a_job_is_recorded_once_each(api: Api) -> None:
    token, row = create_token(api.db, "ann", ["jobs:read", "jobs:write", "files:read", "files:write"], None)
    client = api.bearer(token)
    job_id = submitted(client)["id"]
    here = f"/api/jobs/{job_id}"
    client.post(f"{here}/comments", json={"text": "secret words"})
    client.post(f"{here}/pause")
    client.post(f"{here}/resume", json={"budget": {"max_steps": 9}})
    client.put(f"{here}/files/input/a.txt", content=b"x")
    client.get(f"{here}/files/input/a.txt")
    client.get(f"{here}/workspace.zip")
    client.post(f"{here}/cancel")
    client.post(f"{here}/retry")
    kinds = ["submit", "comment", "pause", "resume", "upload", "download", "download", "cancel", "retry"]
    assert _kinds(api.db, job_id) == [(kind, "ann", "api") for kind in kinds]
    records = _all(api.db, job_id=job_id)
    assert {record.credential for record in records} == {row.id}
    assert {record.address for record in records} == {"127.0.0.1"}
    assert records[4].data == {"path": "input/a.txt", "size": 1}
    assert "secret words" not in repr(records)
    assert token not in repr(records)


def test_a_refused_or_repeated_action_leaves_no_record_of_success(api: Api) -> None:
    client = api.client()
    job = submitted(client, idempotency_key="k")
    client.post("/api/jobs", json={"instruction": "x", "idempotency_key": "k"})
    problem(client.post(f"/api/jobs/{job['id']}/reply", json={"text": "x"}), 409, "IllegalTransition")
    problem(client.post(f"/api/jobs/{job['id']}/retry"), 409, "IllegalTransition")
    assert [row.kind for row in _all(api.db, job_id=job["id"])] == ["submit"]


def test_logins_and_token_changes(api: Api) -> None:
    browser = logged_in(api, "ann")
    made = browser.post("/api/tokens", json={"owner": "bob", "scopes": ["jobs:read"]}).json()
    browser.delete(f"/api/tokens/{made['id']}")
    job_id = submitted(browser)["id"]
    browser.post("/logout")
    records = _all(api.db, actor="ann")
    assert [record.kind for record in records] == [
        "login_code_created", "login", "token_created", "token_revoked", "submit", "logout",
    ]  # fmt: skip
    assert {record.via for record in records[1:]} == {"page"}
    assert {record.credential for record in records[1:]} == {records[1].credential}
    assert records[2].data == {"token": made["id"], "owner": "bob", "scopes": ["jobs:read"]}
    assert records[4].job_id == job_id
    assert made["token"] not in repr(records)


def test_denials_are_recorded_with_what_was_asked_for(api: Api) -> None:
    theirs = submitted(api.client("ann"))["id"]
    reader = api.client("bob", "jobs:read")
    reader.get(f"/api/jobs/{theirs}")
    reader.get("/api/jobs/01900000-0000-7000-8000-000000000000")  # nobody's: no denial
    reader.post("/api/jobs", json={"instruction": "x"})
    api.bearer("sos_wrong").get("/api/jobs")
    api.bearer(None).get("/healthz", headers={"Host": "evil.example"})
    api.bearer(None).post("/login", json={"code": "guess"})
    found = wait_until(
        lambda: len(rows := [*_all(api.db, kind="denied"), *_all(api.db, kind="login_failed")]) >= 5 and rows,
        reason="the writer of denials",
    )
    assert found
    told = [(row.actor, (row.data or {})["status"], row.job_id) for row in found]
    assert told == [
        ("bob", 404, theirs),
        ("bob", 403, None),
        ("", 401, None),
        ("", 421, None),
        ("", 401, None),
    ]
    assert found[3].data == {"status": 421, "method": "GET", "path": "/healthz", "host": "evil.example"}
    assert found[4].kind == "login_failed"
    assert "sos_wrong" not in repr(found)
    assert "guess" not in repr(found)


def test_a_flood_of_denials_is_counted_not_written(db: Database) -> None:
    now = [0.0]
    log = DenialLog(db, lambda: now[0])
    flood = Denial(401, "GET", "/" + "x" * 9999, "h", "127.0.0.1")
    for _ in range(DenialLog.BURST + 500):
        log.write(flood)
    assert len(_all(db)) == DenialLog.BURST
    now[0] += DenialLog.SECONDS_EACH
    log.write(flood)
    suppressed, last = _all(db)[-2:]
    assert (suppressed.kind, suppressed.data) == ("denials_suppressed", {"count": 500})
    assert last.data is not None
    assert len(last.data["path"]) == LONGEST_TEXT


def test_denials_that_wait_are_written_at_the_end_and_never_block(db: Database) -> None:
    log = DenialLog(db)
    for _ in range(2000):
        log.note(Denial(401, "GET", "/", "h", "127.0.0.1"))
    log._waiting.get()
    log.start()
    log.stop()
    records = _all(db)
    written = [record for record in records if record.kind == "denied"]
    counted = [
        record.data["count"] for record in records if record.kind == "denials_suppressed" and record.data
    ]
    assert len(written) == DenialLog.BURST
    assert sum(counted) == 2000 - 1 - DenialLog.BURST


def test_records_cannot_be_changed_nor_taken_away(db: Database) -> None:
    add_records(db, AuditRecord("login", "ann", "page"))
    before = _all(db)
    for statement in (sa.update(audit_log).values(actor="bob"), sa.delete(audit_log)):
        with pytest.raises(sa.exc.DatabaseError, match="append-only"), db.write() as conn:
            conn.execute(statement)
    assert _all(db) == before


def _aged(db: Database, kind: str, days: float) -> None:
    """A record as it was written so many days ago."""
    with db.write() as conn:
        row = {"at": wall_clock() - days * 86_400, "kind": kind, "actor": "ann", "via": "api"}
        conn.execute(sa.insert(audit_log).values(row))


def test_records_go_by_age_alone_and_none_within_a_month(db: Database) -> None:
    for kind, days in (("ancient", 400), ("old", 366), ("kept", 300), ("young", 29)):
        _aged(db, kind, days)
    assert remove_old(db, 365 * 86_400.0, limit=1) == 1
    assert remove_old(db, 365 * 86_400.0) == 1
    assert remove_old(db, 365 * 86_400.0) == 0
    assert {row.kind for row in _all(db)} == {"kept", "young"}
    with pytest.raises(sa.exc.DatabaseError, match="append-only"):
        remove_old(db, 86_400.0)
    assert {row.kind for row in _all(db)} == {"kept", "young"}


def test_a_month_is_the_least_that_can_be_set(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).audit_days == 365
    with pytest.raises(ValueError, match="audit_days"):
        Settings(data_dir=tmp_path, audit_days=29)


def test_nothing_in_a_record_ends_a_line_or_steers_a_terminal(db: Database) -> None:
    hostile = "a\r\nb\x1b[31m\x00\x9b\u2028\u202e\x7f" + "z" * 10_000
    add_records(
        db, AuditRecord(hostile, hostile, "api", hostile, hostile, hostile, {hostile: [hostile, {"n": 1}]})
    )
    (row,) = _all(db)
    text = repr(row)
    assert not any(character in text for character in "\r\n\x1b\x00\x9b\u2028\u202e\x7f")
    assert row.actor.startswith("a\\x0d\\x0ab\\x1b[31m␀")
    assert len(row.actor) == LONGEST_TEXT


def test_the_source_is_that_of_the_block_also_in_other_threads_of_their_own(db: Database) -> None:
    seen: list[str] = []
    with coming_from(Source("cli")):
        assert entry("x", "ann").via == "cli"
        thread = threading.Thread(target=lambda: seen.append(entry("x", "ann").via))
        thread.start()
        thread.join()
    assert entry("x", "ann").via == "worker"
    assert seen == ["worker"]


def test_a_workers_start_is_recorded_with_its_sandbox(db: Database) -> None:
    values = {
        "name": "w", "host": "h", "pid": 1, "queues": ["agent"], "concurrency": 1, "version": "1",
        "sandbox": "bwrap", "tools": [],
    }  # fmt: skip
    registry.register_worker(db, values)
    (row,) = _all(db)
    assert (row.kind, row.actor, row.data) == (
        "worker_started",
        "w",
        {"sandbox": "bwrap", "queues": ["agent"]},
    )


def test_pages_and_filters(api: Api) -> None:
    for number in range(5):
        add_records(api.db, AuditRecord("x", f"actor {number % 2}", "cli", data={"n": number}))
    admin = api.client("root", "admin")
    seen: list[int] = []
    url = "/api/audit?limit=2&kind=x"
    while url:
        page = admin.get(url).json()
        seen += [record["data"]["n"] for record in page["items"]]
        url = page["next"]
    assert seen == [4, 3, 2, 1, 0]
    found = admin.get("/api/audit", params={"actor": "actor 1", "kind": "x"}).json()["items"]
    assert [record["data"]["n"] for record in found] == [3, 1]
    assert found[0]["at"].endswith("Z")
    problem(api.client().get("/api/audit"), 403, "ScopeMissing")


def test_tool_calls_are_told_by_hash_and_outcome(api: Api) -> None:
    run = factories.running_job(api.db)
    factories.commit(api.db, run, factories.said("", ("c1", "Bash", '{"command": "cat secret"}')))
    admin = api.client("root", "admin")
    answer = admin.get("/api/audit/tool-calls", params={"job_id": run.job_id})
    (call,) = answer.json()["items"]
    assert (call["call_id"], call["name"], call["state"], len(call["arguments_sha256"])) == (
        "c1",
        "Bash",
        "open",
        64,
    )
    assert "secret" not in answer.text


def test_tokens_over_the_api(api: Api) -> None:
    admin = api.client("root", "admin")
    made = admin.post("/api/tokens", json={"scopes": ["jobs:read"], "expires_in": 60}).json()
    assert (made["owner"], made["scopes"]) == ("root", ["jobs:read"])
    client = api.bearer(made["token"])
    assert client.get("/api/jobs").status_code == 200
    listed = admin.get("/api/tokens")
    assert made["token"] not in listed.text
    assert made["id"] in {row["id"] for row in listed.json()["items"]}
    assert admin.delete(f"/api/tokens/{made['id']}").status_code == 204
    problem(client.get("/api/jobs"), 401, "Unauthorized")
    problem(admin.delete("/api/tokens/nobody"), 404, "NotFound")
    problem(admin.post("/api/tokens", json={"scopes": ["jobs:raed"]}), 422, "UsageError")
    problem(admin.post("/api/tokens", json={"expires_in": 0}), 422, "InvalidRequest")
    for method, path in (("GET", "/api/tokens"), ("POST", "/api/tokens"), ("DELETE", "/api/tokens/x")):
        problem(
            api.client().request(method, path, json={} if method == "POST" else None), 403, "ScopeMissing"
        )


def test_the_command_line_is_recorded_and_shown(cli: Cli, folder: Path) -> None:
    job_id = cli("submit", "Do it.").out.strip()
    cli("pause", job_id)
    cli("cancel", job_id)
    cli("tokens", "create", "--owner", "ann")
    records = cli("audit", "--json").data["records"]
    assert [record["kind"] for record in records] == ["token_created", "cancel", "pause", "submit"]
    assert {(record["actor"], record["via"]) for record in records} == {("local", "cli")}
    shown = cli("audit", "--job", job_id[-8:], "--kind", "pause").out
    assert shown.count("\n") == 1
    assert "pause\tlocal\tcli" in shown
    assert cli("audit", "--job", job_id, "--tool-calls").data == {"tool_calls": []}
    assert cli("audit", "--tool-calls").code == 2


def test_a_failed_transaction_takes_its_record_with_it(api: Api) -> None:
    from jobs.lifecycle import retry

    job_id = factories.make_job(api.db)
    with pytest.raises(IllegalTransition):
        retry(api.installation, job_id, None, "ann", None)
    assert _all(api.db, job_id=job_id) == []


def test_a_revoked_token_is_recorded_once_for_each_command(db: Database) -> None:
    _, row = create_token(db, "ann", ["jobs:read"], None)
    revoke(db, row.id, "ann")
    create_login_code(db, "ann")
    assert [record.kind for record in _all(db)] == ["token_created", "token_revoked", "login_code_created"]
    assert audit.plain("x") == "x"
