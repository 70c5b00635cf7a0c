"""What the tests of the tools share."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jobs.workspace import InputFile, create_workspace
from worker.cancel import CancelToken
from worker.sandbox.base import Sandbox
from worker.tools.base import ToolContext, ToolResult
from worker.tools.catalogue import Catalogue, standard_tools
from worker.tools.dispatch import run_tool

TOOLS = Catalogue(standard_tools()).select(["*"], edit=True)


def make_workspace(folder: Path, **files: bytes) -> Path:
    """A workspace with input files; `a_txt=b''` becomes `input/a.txt`."""
    inputs = [InputFile(name.replace("_", "."), content) for name, content in files.items()]
    return create_workspace(folder, "job-1", inputs)


def make_context(
    workspace: Path,
    *,
    budget: int = 10_000,
    sandbox: Sandbox | None = None,
    cancel: CancelToken | None = None,
) -> ToolContext:
    return ToolContext(
        workspace=workspace,
        cancel=cancel or CancelToken(),
        budget_tokens=budget,
        job_id="job-1",
        call_id="call-1",
        sandbox=sandbox,
        bash_timeout=30,
    )


def call(context: ToolContext, name: str, /, **arguments: Any) -> ToolResult:
    return run_tool(name, json.dumps(arguments), context, TOOLS)


def read_all(context: ToolContext, path: str, **first: int) -> str:
    """A file put together from Read's answers by following their hints, as a model would."""
    arguments = dict(first)
    pieces: list[str] = []
    for _ in range(100_000):
        result = call(context, "Read", path=path, **arguments)
        assert not result.is_error, result.content
        cut = re.search(r"\n\[cut: [^\]]*Read on with (offset|byte_offset)=(\d+),[^\]]*\]\Z", result.content)
        if cut is None:
            last = re.sub(r"\n\[the file is in [^\]]*\]\Z", "", result.content)
            return "".join([*pieces, last])
        following = {cut[1]: int(cut[2])}
        assert following != arguments, "the hint does not move forward"
        arguments = following
        pieces.append(result.content[: cut.start()])
    raise AssertionError("the hints never end")
