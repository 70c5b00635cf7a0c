"""Lists with filters and in both orders; one action on many jobs."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import bulk
from jobs.bulk import MOST_JOBS
from tests import factories
from tests.api.conftest import Api, problem, submitted


def _ids(answer: Any) -> list[str]:
    return [job["id"] for job in answer.json()["items"]]


def test_filters_find_what_fits_all_of_them(api: Api) -> None:
    client = api.client("ann")
    first = submitted(client, "Fix 100% of it", repository="demo", task_identifier="7", user="kim")["id"]
    second = submitted(client, "Fix nothing", repository="demo", task_type="issue", task_identifier="8")["id"]
    third = submitted(client, "Write", piece="research-report")["id"]
    client.post(f"/api/jobs/{second}/pause")
    submitted(api.client("bob"), "Fix 100% of it", repository="demo")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"title": "fix"}, [second, first]),
        ({"title": "100%"}, [first]),
        ({"title": "100_"}, []),
        ({"repository": "demo", "task_identifier": "8"}, [second]),
        ({"user": "kim"}, [first]),
        ({"task_type": "issue"}, [second]),
        ({"piece": "research-report"}, [third]),
        ({"state": ["paused", "queued"]}, [third, second, first]),
        ({"reason": "paused_by_user"}, [second]),
        ({"state": "paused", "user": "kim"}, []),
        (
            {"created_after": "2020-01-01T00:00:00Z", "created_before": "2999-01-01T00:00:00+09:00"},
            [third, second, first],
        ),
        ({"created_before": "2020-01-01T00:00:00Z"}, []),
        ({"order": "oldest"}, [first, second, third]),
        ({"owner": "ann", "title": "write"}, [third]),
    ]
    for query, found in cases:
        assert _ids(client.get("/api/jobs", params=query)) == found, query
    problem(client.get("/api/jobs", params={"owner": "bob"}), 403, "ScopeMissing")
    admin = api.client("root", "admin")
    assert len(_ids(admin.get("/api/jobs", params={"repository": "demo"}))) == 3
    assert _ids(admin.get("/api/jobs", params={"owner": "ann", "repository": "demo"})) == [second, first]


def test_pages_in_the_other_order(api: Api) -> None:
    client = api.client()
    made = [submitted(client, f"job {number}")["id"] for number in range(5)]
    seen: list[str] = []
    url = "/api/jobs?limit=2&order=oldest&title=job"
    while url:
        page = client.get(url).json()
        seen += [job["id"] for job in page["items"]]
        url = page["next"]
    assert seen == made


def test_an_unchanged_list_is_not_sent_again(api: Api) -> None:
    client = api.client()
    job = submitted(client)
    tag = client.get("/api/jobs").headers["etag"]
    again = client.get("/api/jobs", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    client.post(job["links"]["pause"])
    assert client.get("/api/jobs", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    "query", ["stat=queued", "order=odd", "created_after=2020-01-01T00:00:00", "limit=1001"]
)
def test_a_query_that_is_none_is_refused(api: Api, query: str) -> None:
    problem(api.client().get(f"/api/jobs?{query}"), 422, "InvalidRequest")


def test_each_job_has_its_own_result(api: Api) -> None:
    client = api.client("ann")
    queued, done = submitted(client)["id"], factories.make_job(api.db, "succeeded", owner="ann")
    theirs = submitted(api.client("bob"))["id"]
    body = {"action": "pause", "ids": [queued, done, theirs, "nothing", queued]}
    answer = client.post("/api/jobs/bulk", json=body).json()
    assert answer["more"] is False
    assert [
        (result["id"], result["ok"], result["state"], result["code"]) for result in answer["results"]
    ] == [
        (queued, True, "paused", None),
        (done, False, None, "IllegalTransition"),
        (theirs, False, None, "JobNotFound"),
        ("nothing", False, None, "JobNotFound"),
    ]
    assert factories.job_now(api.db, theirs)["state"] == "queued"


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [("pause", "queued", "paused"), ("resume", "paused", "queued"), ("cancel", "waiting_human", "cancelled"), ("retry", "failed", "queued")],
)  # fmt: skip
def test_of_a_filter_the_oldest_that_fit_and_are_ones_own(
    api: Api, action: str, before: str, after: str
) -> None:
    mine = sorted(factories.make_jobs(api.db, 3, before, owner="ann"))  # ids are the order
    theirs = factories.make_job(api.db, before, owner="bob")
    client = api.client("ann")
    body = {"action": action, "filter": {"state": [before]}, "limit": 2}
    answer = client.post("/api/jobs/bulk", json=body).json()
    assert [(result["id"], result["state"]) for result in answer["results"]] == [
        (job, after) for job in mine[:2]
    ]
    assert answer["more"] is True
    rest = client.post("/api/jobs/bulk", json=body).json()
    assert ([result["id"] for result in rest["results"]], rest["more"]) == ([mine[2]], False)
    assert factories.job_now(api.db, theirs)["state"] == before


def test_when_the_time_is_up_the_rest_is_told(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "LONGEST_SECONDS", -1.0)
    job_id = submitted(api.client())["id"]
    (result,) = (
        api.client().post("/api/jobs/bulk", json={"action": "pause", "ids": [job_id]}).json()["results"]
    )
    assert (result["ok"], result["code"]) == (False, "NotTried")
    assert factories.job_now(api.db, job_id)["state"] == "queued"


@pytest.mark.parametrize(
    "body",
    [
        {"action": "pause"},
        {"action": "pause", "ids": []},
        {"action": "pause", "filter": {}},
        {"action": "pause", "ids": ["x"], "filter": {"state": ["queued"]}},
        {"action": "pause", "ids": ["x"] * (MOST_JOBS + 1)},
        {"action": "delete", "ids": ["x"]},
        {"action": "pause", "filter": {"stat": ["queued"]}},
    ],
    ids=str,
)
def test_what_no_bulk_action_is_made_of(api: Api, body: dict[str, Any]) -> None:
    problem(api.client().post("/api/jobs/bulk", json=body), 422, "InvalidRequest")
