"""/metrics: true figures, labels that nobody can multiply, and a database that is not asked for each scrape."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from jobs.api import metrics
from jobs.errors import DatabaseUnavailable
from jobs.measures import COST, MODEL_CALLS, STEPS, TOOL_CALLS
from storage import statistics
from storage.measures import Series, read_measures
from storage.models import STATES
from tests import factories
from tests.api.conftest import Api, Client, problem, submitted
from worker.measures import MOST_SERIES, Measures


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
    assert found["sostenuto_queue_age_seconds", (("queue", "agent"),)] >= 0
    assert found["sostenuto_queue_depth", (("queue", "agent"),)] == 3
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


# --- what workers count, and the rules over all of it ---

DEPLOY = Path(__file__).parents[2] / "deploy"


def _promtool(*arguments: str, given: bytes = b"") -> str:
    """Prometheus' own checker, which .ci/run installs; what it said."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("promtool", path=os.pathsep.join((beside, os.environ["PATH"])))
    assert found, "promtool is missing: .ci/run says how to get it from Debian's package prometheus"
    done = subprocess.run(
        [found, *arguments], cwd=DEPLOY, input=given, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def test_workers_counts_are_added_up_and_told_as_prometheus_wants_it(api: Api) -> None:
    workers = [Measures() for _ in range(2)]
    for number, worker in enumerate(workers):
        worker.count(MODEL_CALLS, 'm"\\\n', "answered")
        worker.count(COST, by=0.25)
        worker.observe(STEPS, 0.2 + number)
        worker.observe(STEPS, 9999.0)
        for tool in range(MOST_SERIES + 50):
            worker.count(TOOL_CALLS, f"made-up-{number}-{tool}", "error")
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda worker: worker.flush(api.db, at_once=True), workers):
            pass
    workers[0].count(COST, by=0.5)
    workers[0].flush(api.db)  # not yet: it has just told
    client = api.client("mon", "metrics:read")
    found = _scraped(client)
    assert found["sostenuto_model_calls_total", (("model", 'm"\\\n'), ("outcome", "answered"))] == 2
    assert found["sostenuto_cost_total", ()] == 0.5
    buckets = {
        dict(labels)["le"]: n
        for (name, labels), n in found.items()
        if name == "sostenuto_step_seconds_bucket"
    }
    assert [buckets[le] for le in ("0.1", "0.25", "1.0", "2.5", "1200.0", "+Inf")] == [0, 1, 1, 2, 2, 4]
    assert found["sostenuto_step_seconds_count", ()] == 4
    tools = [labels for name, labels in found if name == "sostenuto_tool_calls_total"]
    assert len(tools) == 2 * MOST_SERIES + 1
    _promtool("check", "metrics", given=client.get("/metrics").content)


def test_what_was_counted_during_an_outage_is_told_after_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Measures()
    worker.count(COST, by=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(api.db, "lone_write", lambda: (_ for _ in ()).throw(DatabaseUnavailable("away")))
        with pytest.raises(DatabaseUnavailable):
            worker.flush(api.db, at_once=True)
    worker.count(COST, by=1.0)
    worker.flush(api.db, at_once=True)
    assert read_measures(api.db) == {Series("sostenuto_cost"): 2.0}


def test_the_rules_are_right_and_ask_for_what_there_is(api: Api) -> None:
    assert "SUCCESS" in _promtool("check", "rules", "prometheus-rules.yml")
    assert "SUCCESS" in _promtool("test", "rules", "prometheus-rules.test.yml")
    rules = [
        rule
        for group in YAML(typ="safe").load(DEPLOY / "prometheus-rules.yml")["groups"]
        for rule in group["rules"]
    ]
    asked = set(re.findall(r"\bsostenuto_\w+", " ".join(rule["expr"] for rule in rules)))
    told = set(
        re.findall(r"^# TYPE (\S+) ", api.client("mon", "metrics:read").get("/metrics").text, re.MULTILINE)
    )
    assert len(asked) >= 8
    assert asked <= told, asked - told
    assert all(rule["annotations"]["runbook"].endswith(".") for rule in rules)
    documented = (DEPLOY.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    ours = {name for name in told if not name.endswith("_created")}
    assert {name for name in ours if f"`{name}`" not in documented} == set()
    assert {rule["alert"] for rule in rules if f"`{rule['alert']}`" not in documented} == set()
