"""Making a workspace, and opening files in one that is hostile."""

from __future__ import annotations

import ctypes
import errno
import io
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import resolver
from jobs.errors import FileRejected, NotFound
from jobs.resolver import open_workspace, replacing
from jobs.workspace import (
    InputFile,
    Limits,
    create_workspace,
    list_workspace,
    open_file,
    remove_workspace,
    store_file,
    workspace_path,
)
from tests.tools.helpers import make_workspace


@pytest.fixture(params=["openat2", "by parts"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, opened with openat2 and with what stands in for it; a secret lies beside it."""
    if request.param == "by parts":
        monkeypatch.setattr(resolver, "_syscall", None)
    (tmp_path / "secret").write_text("secret", "utf-8")
    return make_workspace(tmp_path, a_txt=b"text")


def test_input_files_are_there_with_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"from a path")
    root = create_workspace(
        tmp_path / "data",
        "job-1",
        [
            InputFile("a.txt", b"bytes"),
            InputFile("deep/er/b.txt", tmp_path / "given"),
            InputFile("日本.txt", io.BytesIO(b"stream")),
        ],
    )
    assert root == workspace_path(tmp_path / "data", "job-1")
    assert {path.name for path in root.iterdir()} == {"input", "output", "logs"}
    assert (root / "input/a.txt").read_bytes() == b"bytes"
    assert (root / "input/deep/er/b.txt").read_bytes() == b"from a path"
    assert (root / "input/日本.txt").read_bytes() == b"stream"


def test_everything_is_synced_before_the_workspace_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job must not be committed before its files would survive a power cut."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    root = create_workspace(tmp_path, "job-1", [InputFile("d/a.txt", b"x")])
    partial = root.with_name(".job-1.partial")
    before, after = synced[:-1], synced[-1]
    assert any(path.startswith(str(partial / "input/d/.sostenuto-")) for path in before)
    assert {str(partial), str(partial / "input"), str(partial / "input/d")} <= set(before)
    assert after == str(root.parent)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a\0b",
        "a\nb",
        "x" * 256,
        "é" * 128,
        "folder/",
        ".",
        "a/" * 70 + "b",
        ".sostenuto-x",
        "\ud800",
    ],
)
def test_bad_names_are_rejected_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileRejected):
        create_workspace(tmp_path, "job-1", [InputFile("good", b""), InputFile(name, b"x")])
    assert list((tmp_path / "workspaces").iterdir()) == []


def test_the_message_says_which_limit_was_passed(tmp_path: Path) -> None:
    limits = Limits(file_bytes=10, total_bytes=15, files=3)
    ten = InputFile("a", b"0123456789")
    with pytest.raises(FileRejected, match="10 bytes a file"):
        create_workspace(tmp_path, "job-1", [InputFile("a", b"0123456789a")], limits)
    with pytest.raises(FileRejected, match="15 bytes for all"):
        create_workspace(tmp_path, "job-1", [ten, InputFile("b", b"012345")], limits)
    with pytest.raises(FileRejected, match="limit is 3"):
        create_workspace(tmp_path, "job-1", [InputFile(str(at), b"") for at in range(4)], limits)
    with pytest.raises(FileRejected, match="two files"):
        create_workspace(tmp_path, "job-1", [ten, InputFile("./a", b"")], limits)
    assert list((tmp_path / "workspaces").iterdir()) == []


def test_a_source_that_would_block_or_is_gone_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for source in (tmp_path / "fifo", tmp_path / "gone", tmp_path):
        with pytest.raises(FileRejected):
            create_workspace(tmp_path, "job-1", [InputFile("a", source)])


def test_a_workspace_is_made_once_and_can_be_removed(tmp_path: Path) -> None:
    root = make_workspace(tmp_path)
    (root / "output/link").symlink_to(tmp_path)
    with pytest.raises(FileRejected, match="already"):
        make_workspace(tmp_path)
    assert remove_workspace(tmp_path, "job-1")
    assert not remove_workspace(tmp_path, "job-1")
    assert not root.exists()
    with pytest.raises(FileRejected):
        workspace_path(tmp_path, "../job-1")


def test_a_listing_names_oddities_and_follows_nothing(root: Path, tmp_path: Path) -> None:
    (root / "output/sub").mkdir()
    (root / "output/sub/b").write_bytes(b"12345")
    (root / "output/loop").symlink_to(".")
    (root / "output/out").symlink_to(tmp_path)
    os.mkfifo(root / "output/fifo")
    listing = list_workspace(root)
    assert [(entry.path, entry.kind, entry.size) for entry in listing.entries] == [
        ("input/a.txt", "file", 4),
        ("output/fifo", "other", 0),
        ("output/loop", "link", 0),
        ("output/out", "link", 0),
        ("output/sub/b", "file", 5),
    ]
    assert listing.total == 5


def test_a_listing_is_cut_with_its_total(root: Path) -> None:
    for at in range(250):
        (root / f"output/{at:03}").touch()
    listing = list_workspace(root)
    assert (len(listing.entries), listing.total, listing.complete) == (200, 251, True)


def test_input_replaced_by_a_link_lists_and_opens_nothing(root: Path, tmp_path: Path) -> None:
    (root / "input/a.txt").unlink()
    (root / "input").rmdir()
    (root / "input").symlink_to(tmp_path)
    assert list_workspace(root).total == 0
    with pytest.raises(FileRejected):
        open_file(root, "input/secret")
    with pytest.raises(FileRejected):
        store_file(root, "input/new", b"x")
    assert not (tmp_path / "new").exists()


def _plant(root: Path, secret: Path) -> Iterator[str]:
    """Every way to make a path lead outside, or to hang who opens it."""
    (root / "absolute").symlink_to(secret)
    yield "absolute"
    (root / "relative").symlink_to("../../secret")
    yield "relative"
    (root / "folder").symlink_to(secret.parent)
    yield "folder/secret"
    (root / "dangling").symlink_to("nowhere")
    yield "dangling"
    (root / "self").symlink_to("self")
    yield "self"
    (root / "magic").symlink_to(f"/proc/{os.getpid()}/root{secret}")
    yield "magic"
    os.link(secret, root / "hard")
    yield "hard"
    os.mkfifo(root / "fifo")
    yield "fifo"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
    yield "sock"
    if os.geteuid() == 0:
        os.mknod(root / "device", 0o020666, os.makedev(1, 3))
        yield "device"
    yield from (
        "/etc/passwd",
        "../../secret",
        "input/../../../secret",
        "a\0b",
        "",
        ".",
        "input",
        "\ud800",
        "x" * 300,
    )


def test_no_path_leads_outside_or_blocks(root: Path, tmp_path: Path) -> None:
    for path in _plant(root, tmp_path / "secret"):
        with pytest.raises((FileRejected, NotFound)):
            open_file(root, path).close()
        if path not in {"self", "dangling", "fifo", "sock", "device", "input"}:
            continue
        with pytest.raises(FileRejected):
            store_file(root, path, b"x")
    assert (tmp_path / "secret").read_text("utf-8") == "secret"


def test_writing_never_goes_through_a_link(root: Path, tmp_path: Path) -> None:
    for path in _plant(root, tmp_path / "secret"):
        with pytest.raises((FileRejected, NotFound)):
            store_file(root, path, b"overwritten")
    assert (tmp_path / "secret").read_text("utf-8") == "secret"
    assert not any(path.name.startswith(resolver.TEMPORARY_PREFIX) for path in root.rglob("*"))


def test_sibling_prefix_names_do_not_confuse(root: Path) -> None:
    (root.with_name("job-1-evil")).mkdir()
    with pytest.raises(FileRejected):
        open_file(root, "../job-1-evil/x")


def test_links_inside_work_where_the_kernel_resolves_them(tmp_path: Path) -> None:
    root = make_workspace(tmp_path, a_txt=b"text")
    (root / "output/link").symlink_to("../input/a.txt")
    with open_file(root, "output/link") as file:
        assert file.read() == b"text"


def test_a_kernel_without_openat2_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    monkeypatch.setattr(resolver, "_syscall", missing)
    root = make_workspace(tmp_path, a_txt=b"text")
    with open_file(root, "input/a.txt") as file:
        assert file.read() == b"text"


def _write_half(root_fd: int) -> None:
    with replacing(root_fd, "input/a.txt") as file:
        file.write(b"half")
        raise KeyError


def test_a_replaced_file_keeps_its_permissions_and_a_failed_write_its_content(root: Path) -> None:
    (root / "input/a.txt").chmod(0o755)
    root_fd = open_workspace(root)
    try:
        with replacing(root_fd, "input/a.txt") as file:
            file.write(b"new")
        with pytest.raises(KeyError):
            _write_half(root_fd)
    finally:
        os.close(root_fd)
    assert (root / "input/a.txt").read_bytes() == b"new"
    assert (root / "input/a.txt").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (root / "input").iterdir()] == ["a.txt"]


def test_files_put_later_are_under_the_caps(root: Path) -> None:
    limits = Limits(file_bytes=10, total_bytes=12, files=2)
    assert store_file(root, "output/new/b", io.BytesIO(b"12345678"), limits) == 8
    with pytest.raises(FileRejected, match="does not fit"):
        store_file(root, "output/b", b"x", Limits(10, 12, 3))
    with pytest.raises(FileRejected, match="limit is 2"):
        store_file(root, "output/c", b"", limits)


def test_swapping_a_folder_for_a_link_never_leads_outside(root: Path, tmp_path: Path) -> None:
    """The race every check-then-open loses: a folder is exchanged with a link while files are read and written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"secret")
    inside = root / "output"
    (inside / "real").mkdir()
    (inside / "real/f").write_bytes(b"inside")
    (inside / "evil").symlink_to(outside)
    stop = threading.Event()
    names = os.fsencode(inside / "real"), os.fsencode(inside / "evil")

    def swap() -> None:
        exchange = ctypes.CDLL(None).renameat2
        while not stop.is_set():
            assert exchange(-100, names[0], -100, names[1], 2) == 0  # AT_FDCWD, RENAME_EXCHANGE

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = written = 0
    try:
        deadline = time.monotonic() + 2  # how long the attacker has, not how long anything may take
        for at in itertools.count():
            if time.monotonic() > deadline:
                break
            try:
                if at % 4:
                    with open_file(root, "output/real/f") as file:
                        assert file.read() != b"secret"
                    read += 1
                else:
                    root_fd = open_workspace(root)
                    try:
                        with replacing(root_fd, "output/real/f") as file:
                            file.write(b"inside")
                    finally:
                        os.close(root_fd)
                    written += 1
            except (FileRejected, NotFound):
                pass
    finally:
        stop.set()
        swapper.join()
    assert read, "the race was never won by the honest side"
    assert [path.name for path in outside.iterdir()] == ["f"]
    assert (outside / "f").read_bytes() == b"secret"
