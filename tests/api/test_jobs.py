"""Submitting, reading and controlling jobs over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.settings import LimitSettings
from jobs.views import get_job
from jobs.workspace import workspace_path
from storage.records import NewPlan, RunRef
from tests import factories
from tests.api.conftest import Api, problem, submitted

STATES_LINKS = [
    ("queued", {"pause", "cancel"}),
    ("paused", {"resume", "cancel"}),
    ("waiting_human", {"pause", "cancel", "reply"}),
    ("failed", {"retry"}),
    ("succeeded", set()),
]


def test_a_job_is_stored_with_all_that_was_given(api: Api) -> None:
    client = api.client("ann")
    given = {
        "instruction": "Count the lines.\nThen stop.",
        "piece": "general",
        "task_type": "issue",
        "task_identifier": "7",
        "repository": "demo",
        "user": "kim",
        "priority": 3,
        "available_at": "2999-01-02T03:04:05+01:00",
        "budget": {"max_steps": 5, "max_cost": 0.5},
        "model": "some-model",
        "metadata": {"nested": [1, {"a": None}]},
    }
    answer = client.post("/api/jobs", json=given)
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == job["links"]["self"] == f"/api/jobs/{job['id']}"
    stored = get_job(api.installation, job["id"], "ann")
    assert {name: value for name, value in job.items() if name != "links"} == json.loads(
        json.dumps(stored.as_dict())
    )
    for name in (
        "piece",
        "task_type",
        "task_identifier",
        "repository",
        "user",
        "priority",
        "model",
        "metadata",
    ):
        assert job[name] == given[name]
    assert job["available_at"] == "2999-01-02T02:04:05.000Z"
    assert job["budget"] == {"max_steps": 5, "max_tokens": None, "max_cost": 0.5, "max_seconds": None}
    assert (job["owner"], job["title"], job["state"]) == ("ann", "Count the lines.", "queued")


def test_the_same_key_gives_the_same_job(api: Api) -> None:
    client = api.client()
    body = {"instruction": "x"}
    first = client.post("/api/jobs", json=body, headers={"Idempotency-Key": "k"})
    second = client.post("/api/jobs", json=body, headers={"Idempotency-Key": "k"})
    third = client.post("/api/jobs", json=body | {"idempotency_key": "k"})
    assert [answer.status_code for answer in (first, second, third)] == [201, 200, 200]
    assert len({answer.json()["id"] for answer in (first, second, third)}) == 1
    assert second.headers["location"] == first.headers["location"]
    other = client.post("/api/jobs", json=body | {"idempotency_key": "k"}, headers={"Idempotency-Key": "l"})
    problem(other, 409, "KeysDiffer")
    assert api.client("bob").post("/api/jobs", json=body, headers={"Idempotency-Key": "k"}).status_code == 201


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"instruction": "  "}, "InvalidInstruction"),
        ({"instruction": "x", "available_at": "2026-01-01T00:00:00"}, "InvalidRequest"),
        ({"instruction": "x", "priority": "5"}, "InvalidRequest"),
        ({"instruction": "x", "budget": {"max_steps": True}}, "InvalidRequest"),
        ({"instruction": "x", "budget": {"max_tokens": 1.5}}, "InvalidRequest"),
        ({"instruction": "x", "budget": {"max_steps": 0}}, "InvalidRequest"),
        ({"instruction": "x", "idempotency_key": ""}, "InvalidRequest"),
        ({"instruction": "x", "priority": 1001}, "InvalidRequest"),
        ({"instruction": "x", "owner": "ann"}, "InvalidRequest"),
        ({}, "InvalidRequest"),
        ([], "InvalidRequest"),
    ],
    ids=str,
)
def test_what_no_job_is_made_of(api: Api, body: Any, code: str) -> None:
    client = api.client()
    problem(client.post("/api/jobs", json=body), 422, code)
    assert client.get("/api/jobs").json() == {"items": [], "next": None}


def test_what_a_job_names_must_be_there(api: Api) -> None:
    client = api.client()
    unknown = {"instruction": "x", "piece": "generl"}
    assert (
        problem(client.post("/api/jobs", json=unknown), 404, "UnknownPiece")["hint"]
        == "did you mean 'general'?"
    )
    problem(
        client.post("/api/jobs", json={"instruction": "x", "inherits_from": "y"}), 404, "PredecessorNotFound"
    )


@pytest.mark.parametrize(
    "past", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2001-01-01T00:00:00+09:00"]
)
def test_a_time_that_is_past_means_now(api: Api, past: str) -> None:
    job = submitted(api.client(), available_at=past)
    assert (job["reason"], job["available_at"]) == ("new", job["created_at"])


def test_only_an_administrator_names_a_script_of_the_workers_machine(api: Api) -> None:
    body = {"instruction": "x", "model": "scripted:/etc/passwd"}
    problem(api.client().post("/api/jobs", json=body), 403, "ScopeMissing")
    assert api.client("root", "admin").post("/api/jobs", json=body).status_code == 201
    failed = factories.make_job(api.db, "failed")
    problem(api.client().post(f"/api/jobs/{failed}/retry", json={"model": "scripted:x"}), 403, "ScopeMissing")


def test_input_files_come_with_the_job(api: Api) -> None:
    client = api.client()
    large = b"0123456789abcdef" * (3 << 16)
    files = [
        ("files", ("a.csv", b"a,b\n", "text/csv")),
        ("files", ("sub/b.bin", large, "application/octet-stream")),
    ]
    answer = client.post("/api/jobs", data={"job": json.dumps({"instruction": "x"})}, files=files)
    assert answer.status_code == 201, answer.text
    folder = workspace_path(api.installation.settings.data_dir, answer.json()["id"]) / "input"
    assert (folder / "a.csv").read_bytes() == b"a,b\n"
    assert (folder / "sub" / "b.bin").read_bytes() == large


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", ".sostenuto-x"])
def test_an_input_file_with_a_bad_name_is_refused_and_nothing_stays(api: Api, name: str) -> None:
    client = api.client()
    job = json.dumps({"instruction": "x"})
    answer = client.post("/api/jobs", data={"job": job}, files={"files": (name, b"x")})
    problem(answer, 422, "FileRejected")
    assert client.get("/api/jobs").json()["items"] == []
    workspaces = api.installation.settings.data_dir / "workspaces"
    assert not workspaces.exists() or list(workspaces.iterdir()) == []


def test_a_form_without_a_job_or_with_too_many_files_is_refused(api: Api) -> None:
    client = api.client()
    problem(client.post("/api/jobs", files={"files": ("a", b"x")}), 422, "InvalidRequest")
    object.__setattr__(api.installation.settings, "max_workspace_files", 2)
    many = [("files", (f"{number}", b"x")) for number in range(3)]
    answer = client.post("/api/jobs", data={"job": '{"instruction": "x"}'}, files=many)
    problem(answer, 400, "BadRequest")
    reader = api.client("local", "jobs:write")
    answer = reader.post("/api/jobs", data={"job": '{"instruction": "x"}'}, files=many[:1])
    problem(answer, 403, "ScopeMissing")
    assert client.get("/api/jobs").json()["items"] == []


def test_pages_of_jobs_go_on_where_the_last_ended(api: Api) -> None:
    client = api.client()
    made = [submitted(client, f"job {number}")["id"] for number in range(5)]
    seen: list[str] = []
    url = "/api/jobs?limit=2&state=queued&state=running"
    pages = 0
    while url:
        page = client.get(url).json()
        seen += [job["id"] for job in page["items"]]
        url = page["next"]
        pages += 1
        assert not url or "state=running" in url
    assert (seen, pages) == (made[::-1], 3)
    assert client.get("/api/jobs", params={"state": "failed"}).json()["items"] == []


def test_an_unchanged_job_is_not_sent_again(api: Api) -> None:
    client = api.client()
    job = submitted(client)
    first = client.get(job["links"]["self"])
    tag = first.headers["etag"]
    again = client.get(job["links"]["self"], headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    client.post(job["links"]["pause"])
    changed = client.get(job["links"]["self"], headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "paused")


def test_controls_do_what_they_say_and_refuse_what_is_not_possible(api: Api) -> None:
    client = api.client("ann")
    job_id = submitted(client)["id"]
    here = f"/api/jobs/{job_id}"
    assert client.post(f"{here}/pause").json()["state"] == "paused"
    raised = client.post(f"{here}/resume", json={"budget": {"max_steps": 9}}).json()
    assert (raised["state"], raised["budget"]["max_steps"]) == ("queued", 9)
    refused = problem(client.post(f"{here}/resume"), 409, "IllegalTransition")
    assert refused["hint"] == "only a paused job can be resumed"
    assert client.post(f"{here}/cancel").json()["state"] == "cancelled"
    problem(client.post(f"{here}/pause"), 409, "IllegalTransition")
    retried = client.post(f"{here}/retry", json={"model": "other"}).json()
    assert (retried["state"], retried["model"]) == ("queued", "other")
    actors = {event["actor"] for event in client.get(f"{here}/history").json()["items"]}
    assert actors == {"ann"}


def test_comments_and_replies(api: Api) -> None:
    client = api.client("local")
    waiting = factories.make_job(api.db, "waiting_human")
    here = f"/api/jobs/{waiting}"
    answered = client.post(f"{here}/reply", json={"text": "Blue."})
    assert (answered.status_code, answered.json()["text"], answered.json()["author"]) == (
        201,
        "Blue.",
        "local",
    )
    assert client.get(here).json()["state"] == "queued"
    problem(client.post(f"{here}/reply", json={"text": "Red."}), 409, "IllegalTransition")
    problem(client.post(f"{here}/comments", json={"text": " "}), 422, "UsageError")
    numbers = [
        client.post(f"{here}/comments", json={"text": f"note {n}\x00"}).json()["number"] for n in range(3)
    ]
    assert numbers == [2, 3, 4]
    page = client.get(f"{here}/comments?limit=2&after=1").json()
    assert [comment["number"] for comment in page["items"]] == [2, 3]
    assert [comment["number"] for comment in client.get(page["next"]).json()["items"]] == [4]


@pytest.mark.parametrize(("state", "wanted"), STATES_LINKS)
def test_a_job_links_to_what_can_be_done_with_it(api: Api, state: str, wanted: set[str]) -> None:
    job_id = factories.make_job(api.db, state)
    client = api.client()
    links = client.get(f"/api/jobs/{job_id}").json()["links"]
    assert set(links) & {"pause", "resume", "cancel", "retry", "reply"} == wanted
    for name in set(links) - wanted - {"events", "files", "workspace", "context"}:
        assert client.get(links[name]).status_code == 200, name


def _worked(api: Api) -> RunRef:
    """A running job that has made two calls of a tool, a todo list and a plan."""
    run = factories.running_job(api.db)
    todos = {"todos": [{"id": 1, "content": "look", "status": "completed"}]}
    calls = [("c1", "Bash", "{}"), ("c2", "todo_write", json.dumps(todos))]
    factories.commit(api.db, run, factories.said("I look.", *calls))
    factories.commit(api.db, run, factories.returned("c1", "none", is_error=True))
    factories.commit(
        api.db,
        run,
        factories.returned("c2", "noted", name="todo_write"),
        plan=NewPlan("design", "Do it well."),
    )
    return run


def test_what_a_job_did_can_be_read_page_by_page(api: Api) -> None:
    run = _worked(api)
    client = api.client()
    here = f"/api/jobs/{run.job_id}"
    page = client.get(f"{here}/messages?limit=2").json()
    assert [message["role"] for message in page["items"]] == ["assistant", "tool"]
    assert [message["seq"] for message in client.get(page["next"]).json()["items"]] == [3]
    calls = client.get(f"{here}/tool-calls?limit=1").json()
    assert (calls["items"][0]["name"], calls["items"][0]["is_error"], calls["items"][0]["result_seq"]) == (
        "Bash",
        True,
        2,
    )
    rest = client.get(calls["next"]).json()
    assert ([call["call_id"] for call in rest["items"]], rest["next"]) == (["c2"], None)
    assert client.get(f"{here}/todos").json()["items"] == [
        {"id": "1", "content": "look", "status": "completed"}
    ]
    assert client.get(f"{here}/plans").json()["items"][0]["plan_content"] == "Do it well."
    for name in ("checklists", "lessons", "children"):
        assert client.get(f"{here}/{name}").json() == {"items": [], "next": None}
    problem(client.get(f"{here}/tool-calls?after=x"), 422, "InvalidRequest")
    problem(client.get(f"{here}/messages?after={2**63}"), 422, "InvalidRequest")


def test_children_are_jobs_of_their_own(api: Api) -> None:
    parent = factories.make_job(api.db, "waiting_subtasks", children_open=1, children_total=1)
    child = factories.make_job(api.db, "queued", parent_id=parent)
    client = api.client()
    (found,) = client.get(f"/api/jobs/{parent}/children").json()["items"]
    assert found["id"] == child
    assert client.get(found["links"]["parent"]).json()["id"] == parent
    assert [job["id"] for job in client.get("/api/jobs", params={"parent": parent}).json()["items"]] == [
        child
    ]


def test_pieces_and_workers(api: Api) -> None:
    from storage import registry

    worker = {"name": "w1", "host": "secret-host", "pid": 7, "queues": ["agent"], "concurrency": 2, "version": "1",
              "sandbox": "bwrap", "tools": []}  # fmt: skip
    registry.register_worker(api.db, worker)
    client = api.client()
    assert "general" in {piece["name"] for piece in client.get("/api/pieces").json()["items"]}
    answer = client.get("/api/workers")
    assert [(found["name"], found["sandbox"]) for found in answer.json()["items"]] == [("w1", "bwrap")]
    assert "secret-host" not in answer.text


def test_too_many_waiting_jobs_are_a_429(api: Api) -> None:
    limits = LimitSettings(max_queued=1)
    api.installation.settings = api.installation.settings.model_copy(update={"limits": limits})
    client = api.client()
    first = submitted(client, idempotency_key="k")
    answer = client.post("/api/jobs", json={"instruction": "Do it."})
    problem(answer, 429, "TooManyQueued")
    assert int(answer.headers["retry-after"]) > 0
    again = client.post("/api/jobs", json={"instruction": "Do it.", "idempotency_key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
