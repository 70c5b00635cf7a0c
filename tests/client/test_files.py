"""Files: listed, put, fetched whole or not at all; cut fetches go on; nothing is left of those that fail."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from jobs.workspace import create_workspace, workspace_path
from sostenuto import ConnectionFailed, File, Invalid, NotFound, TooLarge
from tests import factories
from tests.client.conftest import Served

SIZE = 2_000_000


def _workspace(served: Served) -> tuple[str, Path]:
    job_id = factories.make_job(served.db, "succeeded")
    create_workspace(served.installation.settings.data_dir, job_id)
    return job_id, workspace_path(served.installation.settings.data_dir, job_id) / "output"


def test_a_file_goes_there_and_comes_back(served: Served, tmp_path: Path) -> None:
    job_id, _ = _workspace(served)
    client = served.client()
    content = os.urandom(SIZE)
    name = "output/sub folder/ä?#%2e.bin"
    assert client.upload(job_id, name, content) == SIZE
    assert client.upload(job_id, "input/a.txt", b"short") == 5
    assert {(file.path, file.size, file.kind) for file in client.files(job_id)} == {
        (name, SIZE, "file"),
        ("input/a.txt", 5, "file"),
    }
    target = client.download(job_id, name, tmp_path)
    assert target == tmp_path / "ä?#%2e.bin"
    assert target.read_bytes() == content
    assert client.download(job_id, name, tmp_path / "other").read_bytes() == content
    assert client.read(job_id, name) == content
    with pytest.raises(TooLarge):
        client.read(job_id, name, limit=SIZE - 1)


def test_a_file_is_fetched_by_its_entry(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    (output / "100% コーヒー?.txt").write_bytes(b"coffee")
    client = served.client()
    (entry,) = client.files(job_id)
    assert isinstance(entry, File)
    assert client.read(job_id, entry) == b"coffee"
    assert client.download(job_id, entry, tmp_path).name == "100% コーヒー?.txt"


def test_the_workspace_as_a_zip(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    (output / "a.bin").write_bytes(os.urandom(SIZE))
    proxy = served.proxy()
    proxy.cuts.extend([0, SIZE // 2])
    target = served.client(url=proxy.url).download_workspace(job_id, tmp_path)
    assert target == tmp_path / f"{job_id}.zip"
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.read("output/a.bin") == (output / "a.bin").read_bytes()


def test_a_cut_fetch_goes_on_where_it_was(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    content = os.urandom(SIZE)
    (output / "a.bin").write_bytes(content)
    proxy = served.proxy()
    # Cut more often than a failure is borne: each time something arrived, so each is a first one.
    proxy.cuts.extend([SIZE // 6] * 5)
    target = served.client(url=proxy.url, retries=1).download(job_id, "output/a.bin", tmp_path)
    assert target.read_bytes() == content
    assert proxy.connections == 6


def test_a_file_that_changed_meanwhile_is_fetched_anew(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    (output / "a.bin").write_bytes(b"a" * SIZE)
    proxy = served.proxy()
    client = served.client(url=proxy.url)
    replaced = b"b" * (SIZE + 7)

    def replace() -> None:
        if proxy.connections == 2:
            (output / "new").write_bytes(replaced)
            (output / "new").replace(output / "a.bin")

    proxy.before = replace
    proxy.cuts.append(SIZE // 2)
    assert client.download(job_id, "output/a.bin", tmp_path / "a").read_bytes() == replaced


def test_a_fetch_that_fails_leaves_what_was_there(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    (output / "a.bin").write_bytes(b"new" * SIZE)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"old")
    proxy = served.proxy()
    client = served.client(url=proxy.url, retries=1)
    proxy.cuts.extend([1000, *[0] * 5])
    with pytest.raises(ConnectionFailed):
        client.download(job_id, "output/a.bin", folder)
    with pytest.raises(NotFound):
        served.client().download(job_id, "output/no", folder)
    with pytest.raises(NotFound):
        served.client().read(job_id, "output/../../x")
    with pytest.raises(Invalid):
        served.client().upload(job_id, "logs/x", b"")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a.bin": b"old"}


def test_an_upload_that_was_cut_is_sent_again(served: Served, tmp_path: Path) -> None:
    job_id, output = _workspace(served)
    proxy = served.proxy()
    proxy.cuts.extend([0, 0])
    source = tmp_path / "source"
    source.write_bytes(os.urandom(SIZE))
    assert served.client(url=proxy.url).upload(job_id, "output/a.bin", source) == SIZE
    assert (output / "a.bin").read_bytes() == source.read_bytes()
    assert proxy.connections == 3
