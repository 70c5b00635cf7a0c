"""What a job began with: kept with its workspace, bounded, and gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.errors import FileRejected, NotFound
from jobs.starts import MOST_COPY, Line, compare, original, read_start, start_path
from jobs.workspace import InputFile, create_workspace, remove_workspace


def _made(folder: Path, **files: bytes) -> Path:
    named = [InputFile(name.replace("__", "/").replace("_dot_", "."), data) for name, data in files.items()]
    return create_workspace(folder, "job1", named)


def test_text_is_copied_and_the_rest_is_known_by_its_hash(tmp_path: Path) -> None:
    root = _made(
        tmp_path, a__b_dot_txt=b"one\ntwo\n", bin=b"\0\1", long=b"x" * (MOST_COPY + 1), bad=b"\xff\xfe"
    )
    start = read_start(tmp_path, "job1")
    assert start.known
    assert set(start.files) == {"input/a/b.txt", "input/bin", "input/long", "input/bad"}
    assert all(was.sha for was in start.files.values())
    (root / "input" / "a" / "b.txt").write_text("other")
    assert original(tmp_path, "job1", "input/a/b.txt") == b"one\ntwo\n"
    for path in ("input/bin", "input/long", "input/bad", "input/none", "../x"):
        with pytest.raises(NotFound):
            original(tmp_path, "job1", path)
    assert start_path(tmp_path, "job1").stat().st_mode & 0o077 == 0


def test_it_goes_with_its_workspace_and_only_then(tmp_path: Path) -> None:
    _made(tmp_path, a=b"1\n")
    with pytest.raises(FileRejected):
        _made(tmp_path, a=b"2\n")  # there is a workspace already: its start stays
    assert original(tmp_path, "job1", "input/a") == b"1\n"
    remove_workspace(tmp_path, "job1")
    assert not read_start(tmp_path, "job1").known
    assert list((tmp_path / "starts").iterdir()) == []


def test_a_damaged_copy_is_none(tmp_path: Path) -> None:
    _made(tmp_path, a=b"1\n")
    start_path(tmp_path, "job1").write_bytes(b"PK nothing")
    assert not read_start(tmp_path, "job1").known
    with pytest.raises(NotFound):
        original(tmp_path, "job1", "input/a")


def test_a_disk_that_takes_no_copy_does_not_stop_a_job(tmp_path: Path) -> None:
    (tmp_path / "starts").write_text("a file in the way")
    assert (_made(tmp_path, a=b"1\n") / "input" / "a").read_bytes() == b"1\n"
    assert not read_start(tmp_path, "job1").known


def test_lines_that_changed_are_told_with_those_around_them() -> None:
    before = "".join(f"line {number}\n" for number in range(40)).encode()
    found = compare(before, before.replace(b"line 20\n", b"line zwanzig\n"))
    assert found is not None
    assert Line("removed", "line 20") in found
    assert Line("added", "line zwanzig") in found
    assert len(found) == 1 + 3 + 2 + 3
    assert compare(before, before) == []
    assert compare(b"--- a\n", b"") == [Line("place", "@@ -1 +0,0 @@"), Line("removed", "--- a")]
    for other in (b"\0", b"\xff", b"x" * 3000, b"\n" * 3000):
        assert compare(before, other) is None
