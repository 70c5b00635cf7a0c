"""ETags: what a client has already is not sent again, and what has changed is."""

from __future__ import annotations

import pytest

from tests.api.conftest import Api, submitted
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation

__all__ = ["cli", "db", "folder", "installation"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/comments",
        "/history",
        "/messages",
        "/tool-calls",
        "/todos",
        "/checklists",
        "/plans",
        "/lessons",
        "/summaries",
        "/exchanges",
        "/children",
        "/files",
    ],
)
def test_what_is_known_is_not_sent_again(api: Api, path: str) -> None:
    client = api.client()
    here = submitted(client)["links"]["self"] + path
    first = client.get(here)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(here, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(here, headers={"If-None-Match": '"other"'}).content == first.content


def test_what_has_changed_is_sent(api: Api) -> None:
    client = api.client()
    here = submitted(client)["links"]["self"]
    changing = ["", "/comments", "/history", "/files", "/context"]
    tags = {path: client.get(here + path).headers["etag"] for path in changing}
    assert client.get(f"{here}/context", headers={"If-None-Match": tags["/context"]}).status_code == 304
    client.post(f"{here}/comments", json={"text": "one more thing"})
    client.put(f"{here}/files/input/a.txt", content=b"a")
    for path, tag in tags.items():
        answer = client.get(here + path, headers={"If-None-Match": tag})
        assert answer.status_code == 200, path
        assert answer.headers["etag"] != tag


def test_lists_of_the_installation_have_tags_and_changes_have_none(api: Api) -> None:
    admin = api.client("root", "admin")
    job = submitted(admin)
    for path in ("/api/jobs", "/api/pieces", "/api/workers", "/api/tokens", "/api/audit"):
        tag = admin.get(path).headers["etag"]
        assert admin.get(path, headers={"If-None-Match": tag}).status_code == 304, path
    answer = admin.post(f"{job['links']['self']}/pause", headers={"If-None-Match": "*"})
    assert (answer.status_code, answer.headers.get("etag")) == (200, None)
    assert admin.get("/api/jobs/none", headers={"If-None-Match": "*"}).status_code == 404
