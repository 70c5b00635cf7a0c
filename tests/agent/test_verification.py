"""A movement that verifies: its findings reach the movement named, once, with what git says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import COMPLETE, Line, Stage, call, calls, go
from tests.agent.test_movements import head, rules
from worker import transition
from worker.cancel import CancelToken
from worker.git_excerpt import git_excerpt
from worker.sandbox.base import Sandbox

HEADING = "## Findings of the verification\n"


def piece(stage: Stage) -> str:
    return stage.piece(
        "checked",
        {"name": "work", "edit": True, "rules": rules("check")},
        {"name": "check", "verify": "work", "rules": rules("work", "second", "COMPLETE")},
        {"name": "second", "verify": "work", "rules": rules("work", "COMPLETE")},
    )


def blocks(stage: Stage, position: int) -> list[str]:
    return [block.splitlines()[0] for block in head(stage.endpoint.requests[position]).split("\n\n## ")]


def test_findings_are_fed_back_whole_and_once(stage: Stage) -> None:
    """Summaries cut to a title's length, or findings that come back at each visit, mislead the worker."""
    long = "1. The sum is wrong. " * 50
    stage.play(
        go("check", "made", lessons="I made it"),
        go("work", long, lessons="look at the sum"),
        go("check", "mended", lessons="I mended it"),
        go("COMPLETE", "fine"),
        piece=piece(stage),
    )
    _, check, work, again = (head(request) for request in stage.endpoint.requests)
    assert work.startswith(
        f"## Lessons from earlier steps\n- work: I made it\n\n{HEADING}From check:\n{long}\nLessons: look at the sum\n\n"
    )
    assert HEADING not in check
    assert HEADING not in again  # they are the worker's, not the examiner's
    assert "- check: look at the sum" in again


def test_findings_of_two_examiners_come_together(stage: Stage) -> None:
    """The first one's findings are not lost because another examined afterwards."""
    stage.play(
        go("check"), go("second", "small fault"), go("work", "big fault"), go("check"), go("work", "third"),
        go("check"), COMPLETE, piece=piece(stage),
    )  # fmt: skip
    assert f"{HEADING}From check:\nsmall fault\n\nFrom second:\nbig fault\n\n" in head(
        stage.endpoint.requests[3]
    )
    later = head(stage.endpoint.requests[5])
    assert f"{HEADING}From check:\nthird\n\n" in later
    assert "small fault" not in later.partition(HEADING)[2]


def test_findings_are_bounded(stage: Stage) -> None:
    stage.play(go("check"), go("work", "x" * 50_000), go("check"), COMPLETE, piece=piece(stage))
    found = head(stage.endpoint.requests[2]).partition(HEADING)[2].partition("\n\n## ")[0]
    assert transition.FINDINGS_CHARS - 100 < len(found) < transition.FINDINGS_CHARS + 100


def test_findings_survive_a_question_that_rebuilds_the_visit(stage: Stage) -> None:
    """A fresh visit of the same movement after an answer must still know what is to be mended."""
    name = stage.piece(
        "asks",
        {"name": "work", "rules": rules("check", "ASK"), "ask": {"resume": "rebuild"}},
        {"name": "check", "verify": "work", "rules": rules("work", "COMPLETE")},
    )
    job_id = stage.play(go("check"), go("work", "a fault"), go("ASK", "Which?"), piece=name)
    stage.reply(job_id, "that")
    stage.tell(go("check"), COMPLETE)
    stage.run()
    assert f"{HEADING}From check:\na fault\n\n" in head(stage.endpoint.requests[3])


SETUP = """
cd output && git init -q -b main . && git config user.email a@b && git config user.name a
printf 'one\\n' > a.txt && git add a.txt && git commit -q -m first && printf 'two\\n' >> a.txt && touch new.txt
"""


def bash(command: str) -> Line:
    return calls(call("Bash", command=command))


def test_the_head_after_a_verification_has_its_blocks_in_order(stage: Stage) -> None:
    """Lessons, findings, todos, checklists, git; then time, comments, files and the instruction last."""
    todo = {"id": "a", "content": "mend", "status": "pending"}
    job_id = stage.submit(piece=piece(stage))
    stage.comment(job_id, "hello")
    stage.tell(
        bash(SETUP),
        calls(call("todo_write", todos=[todo]), call("checklist_create", name="c", items=["x"])),
        go("check"),
        go("work", "a fault"),
        go("check"),
        COMPLETE,
    )
    stage.run()
    assert stage.job(job_id).state == "succeeded", stage.results(job_id)
    assert blocks(stage, 4) == [
        "## Lessons from earlier steps", "Findings of the verification", "Open todos", "Checklists",
        "Changes in the workspace (git)", "Now", "Comments", "Files", "Task",
    ]  # fmt: skip
    told = head(stage.endpoint.requests[4])
    assert "In output:\n M a.txt\n?? new.txt\n" in told
    assert "\n one\n+two\n" in told
    assert "(git)" not in head(stage.endpoint.requests[3])  # before the verification


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    for folder in ("input", "output", "logs"):
        (workspace / folder).mkdir(parents=True)
    subprocess.run(["bash", "-ec", SETUP], cwd=workspace, check=True, capture_output=True)
    return workspace


def excerpt(workspace: Path, sandbox: Sandbox) -> str | None:
    return git_excerpt(workspace, sandbox, CancelToken())


def test_git_runs_nothing_that_the_workspace_holds(repository: Path, sandbox: Sandbox) -> None:
    """Filters, fsmonitor, hooks, textconv, external diffs and pagers of the workspace's own configuration."""
    trap = repository / "output/trap"
    trap.write_text('#!/bin/bash\ntouch "$(dirname "$0")/sprung"\ncat\n')
    trap.chmod(0o755)
    hook = repository / "output/.git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to(trap)
    keys = ["core.fsmonitor", "core.pager", "diff.external", "filter.t.clean", "filter.t.smudge", "diff.t.textconv", "diff.t.command", "core.sshCommand", "alias.status", "alias.diff"]  # fmt: skip
    path = "/workspace/output/trap" if sandbox.level == "bwrap" else str(trap)
    for key in keys:
        value = f"!{path}" if key.startswith("alias") else path
        config(repository, key, value)
    (repository / "output/.gitattributes").write_text("*.txt filter=t diff=t\n")
    told = excerpt(repository, sandbox)
    assert told is not None
    assert "+two" in told
    assert not (repository / "output/sprung").exists()
    # The trap does spring where git reads the workspace's configuration.
    config(repository, "filter.t.clean", str(trap))
    subprocess.run(
        ["git", "diff", "--no-ext-diff"], cwd=repository / "output", check=False, capture_output=True
    )
    assert (repository / "output/sprung").exists()


def config(repository: Path, key: str, value: str) -> None:
    file = repository / "output/.git/config"
    subprocess.run(["git", "config", "-f", file, key, value], check=True)


def test_a_huge_diff_is_cut(repository: Path, sandbox: Sandbox) -> None:
    (repository / "output/a.txt").write_text("line\n" * 500_000)
    told = excerpt(repository, sandbox)
    assert told is not None
    assert 1000 < len(told) < 8000


def test_without_a_repository_or_a_sandbox_there_is_no_excerpt(tmp_path: Path, sandbox: Sandbox) -> None:
    workspace = tmp_path / "bare"
    (workspace / "output").mkdir(parents=True)
    assert excerpt(workspace, sandbox) is None
    assert git_excerpt(workspace, None, CancelToken()) is None


@pytest.mark.parametrize("spoilt", ["HEAD", "index", "objects", "config"])
def test_a_spoilt_repository_stops_nothing(repository: Path, sandbox: Sandbox, spoilt: str) -> None:
    """A FIFO or rubbish in .git must neither hang the worker nor fail the job."""
    import os
    import shutil

    path = repository / "output/.git" / spoilt
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        os.mkfifo(path)
    told: Any = excerpt(repository, sandbox)
    assert told is None or "a.txt" in told


DOCUMENT = Path(__file__).parents[2] / "docs" / "pieces.md"


def documented(stage: Stage, number: int) -> str:
    """Puts the page's example piece of this number into the user's folder; its name."""
    text = DOCUMENT.read_text(encoding="utf-8").split("```yaml\n")[number].split("```")[0]
    name = text.split("\n")[0].removeprefix("name: ")
    folder = stage.folder / "pieces"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)
    return name


def test_the_documentation_s_examples_run(stage: Stage) -> None:
    """What docs/pieces.md shows is carried out as it says: each way of both pieces that leads to findings."""
    job_id = stage.play(
        calls(call("checklist_create", name="wanted", items=["a pond"])),
        calls(call("Write", path="output/garden.md", content="roses\n")), go("examine"),
        calls(call("checklist_list")), go("draw", "there is no pond"),
        calls(call("Write", path="output/garden.md", content="roses, a pond\n")), go("examine"),
        calls(call("checklist_tick", name="wanted", item=1)), COMPLETE,
        piece=documented(stage, 2),
    )  # fmt: skip
    assert stage.job(job_id).state == "succeeded"
    assert f"{HEADING}From examine:\nthere is no pond\n\n## Checklists\nwanted (0 of 1 done)" in head(
        stage.endpoint.requests[5]
    )
    first = stage.endpoint.calls()
    job_id = stage.play(
        go("mend", "the cause"), go("check", "mended"), go("mend", "it broke x"), go("check"), COMPLETE,
        piece=documented(stage, 1),
    )  # fmt: skip
    assert stage.job(job_id).state == "succeeded"
    assert f"{HEADING}From check:\nit broke x\n" in head(stage.endpoint.requests[first + 3])
