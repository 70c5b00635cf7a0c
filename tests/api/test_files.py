"""Files over HTTP: ranges, attachments, caps, no way out of the workspace; the workspace as a ZIP."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from jobs.workspace import workspace_path
from tests.api.conftest import Api, Client, problem, submitted

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def client(api: Api) -> Client:
    return api.client()


@pytest.fixture
def files(client: Client) -> str:
    """The URL of a job's files."""
    return str(submitted(client)["links"]["files"])


def _folder(api: Api, files: str) -> Path:
    return workspace_path(api.installation.settings.data_dir, files.split("/")[3])


def test_a_file_comes_back_as_an_attachment(client: Client, files: str) -> None:
    stored = client.put(f"{files}/output/r%C3%A9port%22.html", content=CONTENT)
    assert stored.json() == {"path": 'output/réport".html', "size": len(CONTENT)}
    answer = client.get(f"{files}/output/r%C3%A9port%22.html")
    assert answer.content == CONTENT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''r%C3%A9port%22.html"
    assert answer.headers["x-content-type-options"] == "nosniff"
    (listed,) = client.get(files).json()["items"]
    assert (listed["path"], listed["size"], listed["kind"]) == ('output/réport".html', len(CONTENT), "file")
    assert client.get(listed["url"]).content == CONTENT
    client.put(listed["url"], content=b"new")
    assert client.get(listed["url"]).content == b"new"


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=1048500-", 1048500, 1048576),
        ("bytes=-10", 1048566, 1048576),
        ("bytes=1048570-99999999", 1048570, 1048576),
        ("bytes=-99999999", 0, 1048576),
    ],
)
def test_a_range_is_answered_with_just_that(
    client: Client, files: str, header: str, start: int, stop: int
) -> None:
    client.put(f"{files}/input/a", content=CONTENT)
    answer = client.get(f"{files}/input/a", headers={"Range": header})
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(CONTENT)}"
    assert answer.content == CONTENT[start:stop]


def test_other_ranges(client: Client, files: str) -> None:
    client.put(f"{files}/input/a", content=b"0123456789")
    url = f"{files}/input/a"
    for unusable in ("bytes=10-", "bytes=99-100", "bytes=-0"):
        answer = client.get(url, headers={"Range": unusable})
        problem(answer, 416, "RangeNotSatisfiable")
        assert answer.headers["content-range"] == "bytes */10"
    for whole in ("bytes=0-1,3-4", "lines=1-2", "bytes=5-2", "bytes=-", "bytes=x-"):
        answer = client.get(url, headers={"Range": whole})
        assert (answer.status_code, answer.content) == (200, b"0123456789")
    tag = client.get(url).headers["etag"]
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304
    assert client.get(url, headers={"Range": "bytes=1-2", "If-Range": tag}).content == b"12"
    assert client.get(url, headers={"Range": "bytes=1-2", "If-Range": '"old"'}).content == b"0123456789"


ESCAPES = [
    "..%2f..%2f..%2fetc%2fpasswd", "input/..%2f..%2fsostenuto.db", "%2fetc/passwd", "input/%00", "input/a%00b",
    "input//..%2f/..%2fx", "input/link", "input/dangling", "input/folder-link/passwd", "input/fifo", "input/hard",
    "input", "input/%ff",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_of_the_workspace(
    api: Api, client: Client, files: str, tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    folder = _folder(api, files) / "input"
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    (folder / "folder-link").symlink_to("/etc")
    os.mkfifo(folder / "fifo")
    os.link(outside, folder / "hard")
    read = client.get(f"{files}/{path}")
    assert read.status_code in (404, 409, 422), read.text
    assert read.headers["content-type"] == "application/problem+json"
    written = client.put(f"{files}/{path}", content=b"evil")
    if path != "input/%ff":  # an ordinary name, where the file is new
        assert written.status_code in (404, 409, 422), written.text
    assert outside.read_text() == "secret"
    assert not (tmp_path / "nowhere").exists()
    assert "passwd" not in [entry.name for entry in folder.iterdir()]


def test_only_input_and_output_are_written(client: Client, files: str) -> None:
    for path in ("logs/x", "x", "inputx/a", ".sostenuto-x"):
        problem(client.put(f"{files}/{path}", content=b"x"), 422, "FileRejected")
    assert client.get(files).json() == {"items": [], "total": 0, "complete": True}


def test_what_is_too_large_leaves_nothing(api: Api, client: Client, files: str) -> None:
    object.__setattr__(api.installation.settings, "max_file_bytes", 1000)
    object.__setattr__(api.installation.settings, "max_workspace_bytes", 1500)
    client.put(f"{files}/input/a", content=b"a" * 1000)
    problem(client.put(f"{files}/input/a", content=(b"b" * 600 for _ in range(2))), 413, "FileTooLarge")
    problem(client.put(f"{files}/input/b", content=b"b" * 600), 422, "FileRejected")
    assert client.get(f"{files}/input/a").content == b"a" * 1000
    assert [item["path"] for item in client.get(files).json()["items"]] == ["input/a"]
    assert [file.name for file in (_folder(api, files) / "input").iterdir()] == ["a"]


def test_the_workspace_as_a_zip(api: Api, client: Client, files: str, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    client.put(f"{files}/input/a.txt", content=b"a")
    client.put(f"{files}/output/sub/b.bin", content=CONTENT)
    client.put(f"{files}/output/empty", content=b"")
    folder = _folder(api, files)
    (folder / "output" / "link").symlink_to(outside)
    os.link(outside, folder / "output" / "hard")
    (folder / "output" / os.fsdecode(b"\xff")).write_bytes(b"odd")
    answer = client.get(files.replace("/files", "/workspace.zip"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    assert archive.testzip() is None
    # Links, files with other names, and names that are no text cannot be opened: they are left out.
    found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {
        "input/a.txt": b"a",
        "output/empty": b"",
        "output/sub/b.bin": CONTENT,
    }
