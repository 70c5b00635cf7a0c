"""Exchanges over HTTP: for those who may read the job, and for nobody else."""

from __future__ import annotations

import json
import zlib

from jobs.exchanges import exchanges_folder, file_name
from tests.api.conftest import Api, problem, submitted


def _put(api: Api, job_id: str, seq: int, base: int | None, *new: str, kept: int = 0) -> None:
    folder = exchanges_folder(api.installation.settings.data_dir, job_id)
    folder.mkdir(parents=True, exist_ok=True)
    request = {
        "base": base,
        "kept": kept,
        "messages": [{"role": "user", "content": text} for text in new],
        "rest": {"model": "m"} if base is None else None,
    }
    data = {
        "seq": seq,
        "at": 1000.0 + seq,
        "step": seq,
        "outcome": "reply",
        "request": request,
        "response": "r",
    }
    (folder / file_name(seq)).write_bytes(zlib.compress(json.dumps(data).encode()))


def test_a_list_in_pages_and_one_whole(api: Api) -> None:
    client = api.client("ann")
    job = submitted(client)["id"]
    _put(api, job, 1, None, "a", "b")
    _put(api, job, 2, 1, "c", kept=2)
    _put(api, job, 3, 2, "d", kept=1)
    first = client.get(f"/api/jobs/{job}/exchanges?limit=2").json()
    assert [item["seq"] for item in first["items"]] == [1, 2]
    assert first["items"][0]["at"] == "1970-01-01T00:16:41.000Z"
    assert [item["seq"] for item in client.get(first["next"]).json()["items"]] == [3]
    whole = client.get(f"/api/jobs/{job}/exchanges/3").json()
    assert [message["content"] for message in whole["request"]["messages"]] == ["a", "d"]
    assert whole["request"]["model"] == "m"
    assert whole["response"] == "r"
    two = client.get(f"/api/jobs/{job}/exchanges/2").json()
    assert [message["content"] for message in two["request"]["messages"]] == ["a", "b", "c"]
    problem(client.get(f"/api/jobs/{job}/exchanges/4"), 404, "NotFound")


def test_another_s_job_has_none(api: Api) -> None:
    job = submitted(api.client("ann"))["id"]
    _put(api, job, 1, None, "a")
    for path in ("exchanges", "exchanges/1"):
        problem(api.client("bob").get(f"/api/jobs/{job}/{path}"), 404, "JobNotFound")
        problem(api.client("ann", "files:read").get(f"/api/jobs/{job}/{path}"), 403, "ScopeMissing")
        assert api.bearer(None).get(f"/api/jobs/{job}/{path}").status_code == 401
