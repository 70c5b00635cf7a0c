"""Uploads that mean harm: headers without end, bodies without end, connections that break, archives that are bombs."""

from __future__ import annotations

import io
import json
import socket
import zipfile
from pathlib import Path

import pytest

from jobs.workspace import workspace_path
from tests.api.conftest import Api, problem, submitted

_JOB = (
    b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n' + json.dumps({"instruction": "x"}).encode()
)


def _form(*parts: bytes) -> bytes:
    return b"".join(part + b"\r\n" for part in (_JOB, *parts)) + b"--x--\r\n"


def _file(headers: bytes, data: bytes = b"x") -> bytes:
    name = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n'
    return name + headers + b"\r\n" + data


@pytest.mark.parametrize(
    "headers",
    [b"X-Long: " + b"a" * 100_000 + b"\r\n", b"".join(b"X-%d: a\r\n" % at for at in range(10_000))],
    ids=["long", "many"],
)
def test_headers_of_a_part_are_bounded(api: Api, headers: bytes) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    client = api.client()
    assert client.post("/api/jobs", content=_form(_file(b"")), headers=kind).status_code == 201
    answer = client.post("/api/jobs", content=_form(_file(headers)), headers=kind)
    assert answer.status_code == 400, answer.text
    assert len(client.get("/api/jobs").json()["items"]) == 1


def test_a_form_beyond_the_caps_leaves_nothing(api: Api) -> None:
    client = api.client()
    object.__setattr__(api.installation.settings, "max_file_bytes", 1000)
    files = {"files": ("a", b"a" * 1001)}
    problem(client.post("/api/jobs", data={"job": '{"instruction": "x"}'}, files=files), 422, "FileRejected")
    assert client.get("/api/jobs").json()["items"] == []
    assert _left(api.installation.settings.data_dir) == []


def _left(data_dir: Path) -> list[Path]:
    folder = data_dir / "workspaces"
    return [file for file in folder.rglob("*") if file.is_file()] if folder.exists() else []


def test_a_connection_that_breaks_leaves_no_part_of_a_file(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    client = api.client()
    job = submitted(client)
    folder = workspace_path(api.installation.settings.data_dir, job["id"])
    host, _, port = api.url.removeprefix("http://").partition(":")
    token = client.headers["Authorization"]
    for path, kind in (
        (f"{job['links']['files']}/input/part", "x"),
        ("/api/jobs", "multipart/form-data; boundary=x"),
    ):
        method = "PUT" if path.endswith("part") else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: {token}\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: 5000000\r\n\r\n"
        begun = b"y" * 2_000_000 if method == "PUT" else _JOB + b"\r\n" + _file(b"", b"y" * 2_000_000)
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(head.encode() + begun)
    stored = client.put(f"{job['links']['files']}/input/whole", content=b"whole")  # the server has gone on
    assert stored.status_code == 200
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["whole"]
    assert _left(api.installation.settings.data_dir) == [folder / "input/whole"]
    assert "Traceback" not in caplog.text
    assert "Exception" not in caplog.text
    assert [listed["id"] for listed in client.get("/api/jobs").json()["items"]] == [job["id"]]


def test_an_archive_stays_one_file(api: Api) -> None:
    """A bomb that would unpack to 100 MB, with names that lead out."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../evil", b"x")
        archive.writestr("bomb", b"\0" * (100 << 20))
    client = api.client()
    files = {"files": ("a.zip", packed.getvalue())}
    job = client.post("/api/jobs", data={"job": '{"instruction": "x"}'}, files=files).json()
    assert [item["path"] for item in client.get(job["links"]["files"]).json()["items"]] == ["input/a.zip"]
    assert [file.name for file in _left(api.installation.settings.data_dir)] == ["a.zip"]
