"""A command of the agent swaps folders for links while the file tools and the file routes' functions work there."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

from jobs.errors import FileRejected, NotFound
from jobs.workspace import list_workspace, open_file, store_file
from tests.sandbox.conftest import Shell
from tests.tools.helpers import call, make_context
from tests.waiting import wait_until
from worker.cancel import CancelToken
from worker.sandbox.base import Ending
from worker.sandbox.toolchain import python_program

SECONDS = 2  # how long the attacker has, not how long anything may take

_SWAP = """
import ctypes, os
exchange = ctypes.CDLL(None).renameat2
while True:
    exchange(-100, b"output/real", -100, b"output/evil", 2)
    exchange(-100, b"output/file", -100, b"output/link", 2)
    if not os.path.exists("output/swapping"):
        open("output/swapping", "w").close()
"""


def test_a_swap_race_by_a_command_leads_nowhere(any_shell: Shell, tmp_path: Path) -> None:
    """Read, Write, Edit, Glob, Grep, downloads, uploads and listings, against a command that exchanges a folder and a
    file with links to a folder and a file outside, as fast as the kernel can."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("canary", "utf-8")
    output = any_shell.workspace / "output"
    (output / "real").mkdir()
    (output / "real/f").write_text("inside", "utf-8")
    (output / "file").write_text("inside", "utf-8")
    (output / "evil").symlink_to(outside)
    (output / "link").symlink_to(outside / "f")
    (any_shell.workspace / "swap.py").write_text(_SWAP, "utf-8")
    cancel = CancelToken()
    endings: list[Ending] = []

    def swap() -> None:
        argv = ["/bin/bash", "-c", f"{python_program()} -I swap.py"]
        endings.append(
            any_shell.sandbox.run(
                argv, workspace=any_shell.workspace, timeout=120, cancel=cancel, on_output=lambda _: None
            ).ending
        )

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        wait_until((output / "swapping").exists, 30, "the command swaps")
        seen, honest = _work_meanwhile(any_shell.workspace)
    finally:
        cancel.cancel("cancel")
        attacker.join(30)
    assert endings == [Ending.CANCELLED]
    assert [text for text in seen if "canary" in text] == []
    assert honest > 20, "the honest side never won"
    assert [path.name for path in outside.iterdir()] == ["f"]
    assert (outside / "f").read_text("utf-8") == "canary"


def _work_meanwhile(workspace: Path) -> tuple[list[str], int]:
    """What all tools answered in the given time, and how often one had what it wanted."""
    context = make_context(workspace)
    seen: list[str] = []
    honest = 0
    deadline = time.monotonic() + SECONDS
    for at in itertools.count():
        for path in ("output/real/f", "output/file"):
            answers = [
                call(context, "Read", path=path),
                call(context, "Write", path=path, content="inside"),
                call(context, "Edit", path=path, old_string="inside", new_string="inside!"),
                call(context, "Glob", pattern="output/**"),
                call(context, "Grep", pattern=".", path="output"),
            ]
            seen += [answer.content for answer in answers]
            honest += sum(not answer.is_error for answer in answers[:3])
            try:
                with open_file(workspace, path) as file:
                    seen.append(file.read().decode())
                store_file(workspace, path, f"inside {at}".encode())
            except (FileRejected, NotFound):
                pass
            seen += [entry.path for entry in list_workspace(workspace).entries if "outside" in entry.path]
        if time.monotonic() > deadline:
            return seen, honest
    raise AssertionError
