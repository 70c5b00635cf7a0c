"""What tools take of the worker, whatever lies in the workspace: memory, and the time until a cancel is heard."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.tools.helpers import call, make_context, make_workspace
from tests.waiting import wait_until
from worker.cancel import Cancelled, CancelToken
from worker.sandbox.base import Sandbox
from worker.sandbox.watch import process_tree

MEGABYTE = 1 << 20
LARGE = 300 * MEGABYTE

# Prints how many bytes the call added to the peak of a fresh process.
_MEASURED = """
import json, resource, sys
from pathlib import Path
from tests.tools.helpers import call, make_context
context = make_context(Path(sys.argv[1]))
call(context, "Read", path="input/small.txt"); call(context, "Grep", pattern="x"  , path="input/small.txt")
call(context, "Write", path="output/w.txt", content="x"); call(context, "Edit", path="output/w.txt", old_string="x", new_string="y")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = call(context, sys.argv[2], **json.loads(sys.argv[3]))
print(json.dumps([(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10, result.content[:300]]))
"""


def _lines(file: Path) -> None:
    line = b"the quick brown fox jumps over the lazy dog\n"
    with file.open("wb") as out:
        for _ in range(LARGE // MEGABYTE):
            out.write(line * (MEGABYTE // len(line)))
        out.write(b"a needle at the end\n")


def _one_line(file: Path) -> None:
    with file.open("wb") as out:
        for _ in range(LARGE // MEGABYTE):
            out.write(b"x" * MEGABYTE)
        out.write(b" needle")


@pytest.fixture(params=[_lines, _one_line], ids=["many lines", "one line"])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workspace with a text file of 300 MB."""
    workspace = make_workspace(tmp_path, small_txt=b"x\n")
    write: Callable[[Path], None] = request.param
    write(workspace / "input/large.txt")
    return workspace


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", '{"path": "input/large.txt"}'),
        ("Read", '{"path": "input/large.txt", "offset": 4000000}'),
        ("Read", '{"path": "input/large.txt", "byte_offset": 300000000}'),
        ("Grep", '{"pattern": "needle", "path": "input/large.txt"}'),
        ("Grep", '{"pattern": "nee.*dle|x$", "path": "input", "context": 3}'),
        ("Edit", '{"path": "input/large.txt", "old_string": "needle", "new_string": "pin"}'),
        ("Glob", '{"pattern": "**"}'),
    ],
)
def test_a_large_file_costs_bounded_memory(large: Path, tool: str, arguments: str) -> None:
    command = [sys.executable, "-c", _MEASURED, str(large), tool, arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, told = ran.stdout.split(",", 1)
    assert int(grown.strip("[")) < 100 * MEGABYTE, told


def slow_image() -> bytes:
    """36 million pixels of noise, just under the largest file that is taken: its decoding lasts for seconds."""
    made = io.BytesIO()
    Image.frombytes("L", (6000, 6000), os.urandom(36_000_000)).save(made, "PNG", compress_level=0)
    return made.getvalue()


def test_a_cancel_during_decoding_kills_the_child(tmp_path: Path, any_sandbox: Sandbox) -> None:
    workspace = make_workspace(tmp_path)
    (workspace / "input/a.png").write_bytes(slow_image())
    cancel = CancelToken()
    context = make_context(workspace, sandbox=any_sandbox, cancel=cancel)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            call(context, "ReadImage", path="input/a.png")
        except Cancelled as cancelled:
            raised.append(cancelled)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(decoders, 60, "the child decodes")
    cancel.cancel("cancel")
    reader.join(60)
    assert [str(error) for error in raised] == ["stopped: cancel"]
    assert decoders() == []


def decoders(pid: int | None = None) -> list[int]:
    """The children that decode, of this process or of another one."""
    return [child for child in process_tree(pid or os.getpid())[1:] if decodes(child)]


def decodes(pid: int) -> bool:
    """Whether this process is alive and a decoder; one that is dead and not yet reaped has no arguments."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(argument.endswith(b"decoding/child.py") for argument in arguments)
