"""What a client does when a server is busy, or is not what it says: patience, and no credentials for others."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from sostenuto import Job, Misconfigured, NotFound, Sostenuto, Unavailable, UnexpectedAnswer
from sostenuto.calls import listed
from sostenuto.flows import Finished, Flow, Reply, Request, Send, Sleep, advance, answered
from tests import factories
from tests.client.conftest import Served, db, installation, served
from tests.client.either import KINDS, make_client

__all__ = ["db", "installation", "served"]


def _reply(status: int, document: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, httpx2.Headers(named), json.dumps(document).encode())


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    """Both clients carry out this flow."""
    flow: Flow[Reply] = answered(Request("GET", "/api/jobs", idempotent=True), 3)
    assert isinstance(advance(flow, None), Send)
    pause = advance(flow, _reply(status, {"detail": "busy"}, Retry_After="7"))
    assert isinstance(pause, Sleep)
    assert pause.seconds >= 7
    assert isinstance(advance(flow, None), Send)
    done = advance(flow, _reply(200, {"items": []}))
    assert isinstance(done, Finished)


@pytest.mark.parametrize("status", [429, 503])
def test_what_may_have_been_done_is_not_done_again(status: int) -> None:
    flow: Flow[Reply] = answered(Request("POST", "/api/jobs/x/cancel"), 3)
    advance(flow, None)
    with pytest.raises(Unavailable) as raised:
        advance(flow, _reply(status, {"detail": "busy"}, Retry_After="7"))
    assert (raised.value.status, raised.value.retry_after) == (status, 7)


def test_patience_ends() -> None:
    flow: Flow[Reply] = answered(Request("GET", "/api/jobs", idempotent=True), 2)
    advance(flow, None)
    for _ in range(2):
        assert isinstance(advance(flow, _reply(503, {})), Sleep)
        assert isinstance(advance(flow, None), Send)
    with pytest.raises(Unavailable):
        advance(flow, _reply(503, {}))


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/api/jobs",
        "//evil.example/api/jobs",
        "http:/api/jobs",
        "/elsewhere",
        "@evil.example/api/",
        "",
    ],
)
def test_a_page_elsewhere_is_not_asked_for(elsewhere: str) -> None:
    """The token goes with every request: a server, or who answers in its place, may not send it on."""
    flow = listed(0, Job, "/api/jobs")
    advance(flow, None)
    with pytest.raises(UnexpectedAnswer, match="elsewhere"):
        advance(flow, _reply(200, {"items": [], "next": elsewhere}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "how",
    [
        {"url": "ftp://x", "token": "sos_x"},
        {"url": "http://ann:pw@x", "token": "sos_x"},
        {"url": "http://x?token=1", "token": "sos_x"},
        {"url": "http://x", "token": ""},
        {"url": "http://x", "token": "sos_x\r\nHost: y"},
    ],
    ids=str,
)
def test_a_client_that_cannot_work_is_not_made(
    kind: str, how: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOSTENUTO_TOKEN", raising=False)
    with pytest.raises(Misconfigured) as raised:
        make_client(kind, **how)
    assert "sos_x" not in str(raised.value)


def test_filters_summaries_and_many_at_once(served: Served) -> None:
    client: Sostenuto = served.client()
    first = client.submit("Count the lines", task_identifier="7")
    second = client.submit("Sum the lines")
    ended = factories.make_job(served.db, "succeeded")
    assert [job.id for job in client.jobs(title="LINES", oldest_first=True)] == [first.id, second.id]
    assert [job.id for job in client.jobs(task_identifier="7")] == [first.id]
    assert [job.id for job in client.jobs(state="succeeded", piece="general")] == [ended]
    assert client.summaries(ended) == []
    results = client.act_on("pause", [first, second.id, ended, "none"])
    assert [result["ok"] for result in results] == [True, True, False, False]
    assert [result["code"] for result in results[2:]] == ["IllegalTransition", "JobNotFound"]
    assert {job.id for job in client.jobs(reason="paused_by_user")} == {first.id, second.id}
    with pytest.raises(NotFound):
        client.summaries("none")
