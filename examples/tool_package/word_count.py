"""A tool in a package: counts the lines and words of a file in the job's workspace."""

from __future__ import annotations

from typing import Any

from worker.plugins import PluginCall, PluginTool, Risk
from worker.tools.base import CrashPolicy

MOST_BYTES = 10_000_000


def count(call: PluginCall, arguments: dict[str, Any]) -> str:
    """Called with arguments that fit the schema. What it raises is told to the model."""
    with call.open(arguments["path"]) as file:
        text = file.read(MOST_BYTES).decode("utf-8", "replace")
    return f"{len(text.splitlines())} lines, {len(text.split())} words"


TOOL = PluginTool(
    name="word_count",
    description="Counts the lines and words of a text file in the workspace.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}},
        "required": ["path"],
        "additionalProperties": False,
    },
    run=count,
    risk=Risk.READ,
    crash=CrashPolicy.REPEATABLE,
)
