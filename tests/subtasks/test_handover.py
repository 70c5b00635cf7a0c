"""Outputs on their way to the parent: bounded, repeatable, and safe whatever either agent planted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.errors import FileRejected, NotFound
from jobs.handover import Collected, collect_outputs
from jobs.workspace import Limits, create_workspace
from worker.cancel import Cancelled

ENDED = 1_800_000_000.123456
NAME = "1-abcd"


@pytest.fixture
def child(tmp_path: Path) -> Path:
    root = create_workspace(tmp_path, "child")
    (root / "output" / "deep").mkdir()
    (root / "output" / "a.txt").write_text("aaaa")
    (root / "output" / "deep" / "b.txt").write_text("bb")
    return root


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return create_workspace(tmp_path, "parent")


def collect(child: Path, parent: Path, *, ended_at: float = ENDED, **limits: int) -> Collected:
    return collect_outputs(
        child, parent, NAME, ended_at=ended_at, limits=Limits(**limits), check=lambda: None
    )


def inbox(parent: Path) -> dict[str, str]:
    folder = parent / "input" / "subtasks"
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


WHOLE = {f"{NAME}/a.txt": "aaaa", f"{NAME}/deep/b.txt": "bb"}


def test_all_files_with_their_folders(child: Path, parent: Path) -> None:
    assert collect(child, parent) == Collected(f"input/subtasks/{NAME}", 2, 0, ())
    assert inbox(parent) == WHOLE


def test_again_changes_nothing_and_says_the_same(child: Path, parent: Path) -> None:
    first = collect(child, parent, files=1)
    inode = (parent / "input" / "subtasks" / NAME / "a.txt").stat().st_ino
    assert collect(child, parent, files=1) == first
    assert (parent / "input" / "subtasks" / NAME / "a.txt").stat().st_ino == inode
    assert (first.files, first.left_out, first.named) == (1, 1, ("deep/b.txt",))


def test_a_retried_child_is_copied_anew(child: Path, parent: Path) -> None:
    collect(child, parent)
    (child / "output" / "a.txt").unlink()
    (child / "output" / "c.txt").write_text("c")
    collect(child, parent, ended_at=ENDED + 1)
    assert inbox(parent) == {f"{NAME}/c.txt": "c", f"{NAME}/deep/b.txt": "bb"}


def test_stopped_in_the_middle_it_begins_anew(child: Path, parent: Path) -> None:
    """Nothing of a half copy is ever seen under its name."""
    seen: list[None] = []

    def stop() -> None:
        seen.append(None)
        if len(seen) == 2:
            raise Cancelled("cancel")

    with pytest.raises(Cancelled):
        collect_outputs(child, parent, NAME, ended_at=ENDED, limits=Limits(), check=stop)
    assert not (parent / "input" / "subtasks" / NAME).exists()
    collect(child, parent)
    assert inbox(parent) == WHOLE


@pytest.mark.parametrize("limits", [{"file_bytes": 3}, {"total_bytes": 3}])
def test_what_is_too_large_is_left_out_and_named(child: Path, parent: Path, limits: dict[str, int]) -> None:
    collected = collect(child, parent, **limits)
    assert (collected.files, collected.left_out, collected.named) == (1, 1, ("a.txt",))
    assert inbox(parent) == {f"{NAME}/deep/b.txt": "bb"}


def test_links_and_other_oddities_are_left_out(child: Path, parent: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (child / "output" / "link").symlink_to(secret)
    (child / "output" / "folder").symlink_to(tmp_path)
    os.link(secret, child / "output" / "hard")
    os.mkfifo(child / "output" / "pipe")
    collected = collect(child, parent)
    assert inbox(parent) == WHOLE
    assert sorted(collected.named) == ["folder", "hard", "link", "pipe"]


def test_an_output_folder_that_is_a_link_has_nothing(child: Path, parent: Path, tmp_path: Path) -> None:
    (child / "output").rename(tmp_path / "elsewhere")
    (child / "output").symlink_to(tmp_path / "elsewhere")
    assert collect(child, parent).files == 0


@pytest.mark.parametrize("place", ["input", "input/subtasks"])
def test_a_link_planted_by_the_parent_leads_nowhere(
    child: Path, parent: Path, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = parent / place
    if target.exists():
        target.rmdir()
    target.symlink_to(outside)
    with pytest.raises(FileRejected):
        collect(child, parent)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_stands_in_the_place_is_replaced_not_followed(
    child: Path, parent: Path, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (parent / "input" / "subtasks").mkdir()
    place = parent / "input" / "subtasks" / NAME
    if kind == "link":
        place.symlink_to(outside)
    else:
        place.write_text("x")
    collect(child, parent)
    assert inbox(parent) == WHOLE
    assert [file.name for file in outside.iterdir()] == ["kept"]


def test_a_child_whose_workspace_is_gone(parent: Path, tmp_path: Path) -> None:
    with pytest.raises((FileRejected, NotFound)):
        collect(tmp_path / "workspaces" / "gone", parent)
