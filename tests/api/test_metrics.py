"""/metrics: true figures, labels that nobody can multiply, and a database that is not asked for each scrape."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.api import metrics
from storage import statistics
from storage.models import STATES
from tests import factories
from tests.api.conftest import Api, Client, problem, submitted


def _scraped(client: Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_it_tells_the_installations_figures(api: Api) -> None:
    factories.make_jobs(api.db, 3)
    factories.running_jobs(api.db, 2)
    factories.make_job(api.db, "succeeded", steps=7, prompt_tokens=10, completion_tokens=5, cost=0.25)
    found = _scraped(api.client("mon", "metrics:read"))
    by_state = {state: found["sostenuto_jobs", (("state", state),)] for state in STATES}
    assert {state: count for state, count in by_state.items() if count} == {
        "queued": 3, "running": 2, "succeeded": 1,
    }  # fmt: skip
    assert found["sostenuto_runs", ()] == 2
    assert found["sostenuto_workers", ()] == 0
    assert found["sostenuto_queue_age_seconds", ()] >= 0
    assert found["sostenuto_jobs_steps", ()] >= 7
    assert found["sostenuto_jobs_tokens", (("kind", "completion"),)] >= 5
    assert found["sostenuto_jobs_cost", ()] == 0.25
    assert ("sostenuto_wake_ups_total", (("outcome", "failed"),)) in found


def test_requests_are_counted_by_route_and_labels_stay_few(api: Api) -> None:
    client = api.client("root", "admin")
    for number in range(20):
        client.get(f"/api/jobs/{number}")
        client.get(f"/nothing/{number}")
        client.request(f"X{number}", "/api/jobs")
        api.bearer(None).get(f"/api/jobs/{number}")
    found = _scraped(client)
    counted = {
        labels: value for (name, labels), value in found.items() if name == "sostenuto_http_requests_total"
    }
    one = (("method", "GET"), ("route", "/api/jobs/{job_id}"), ("status", "404"))
    assert counted[one] == 20
    assert len(counted) < 8, counted
    refused = (("method", "GET"), ("route", "none"), ("status", "401"))
    assert counted[refused] == 20


def test_it_needs_its_scope(api: Api) -> None:
    problem(api.bearer(None).get("/metrics"), 401, "Unauthorized")
    problem(api.client("ann", "jobs:read").get("/metrics"), 403, "ScopeMissing")
    assert api.client("ann", "metrics:read").get("/api/jobs").status_code == 403


def test_the_database_is_asked_now_and_then(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("load", "spend"):
        real = getattr(statistics, name)

        def told(*arguments: Any, _name: str = name, _real: Any = real) -> Any:
            asked.append(_name)
            return _real(*arguments)

        monkeypatch.setattr(statistics, name, told)
    monkeypatch.setattr(metrics, "LOAD_SECONDS", 3600.0)
    found = metrics.Metrics(api.installation)
    assert asked == []
    for _ in range(5):
        assert b"sostenuto_jobs" in found.text()
    assert sorted(asked) == ["load", "spend"]


def test_a_job_shows_up_when_the_figures_are_old(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOAD_SECONDS", 0.0)
    found = metrics.Metrics(api.installation)
    assert b'sostenuto_jobs{state="queued"} 0.0' in found.text()
    submitted(api.client())
    assert b'sostenuto_jobs{state="queued"} 1.0' in found.text()
