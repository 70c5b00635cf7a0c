"""The storm's own tools and hook, installed into its workers as a package: each call leaves one line outside of everything.

The line names the call, so that an effect that happened twice can be counted exactly. Runs in the worker process.
"""

from __future__ import annotations

import os
import time
from typing import Any

from worker.plugins import PluginCall, PluginTool, Risk
from worker.tools.base import CrashPolicy

LEDGER = "STORM_LEDGER"
HOOK_LEDGER = "STORM_HOOK_LEDGER"
SCHEMA = {
    "type": "object",
    "properties": {"step": {"type": "string"}},
    "required": ["step"],
    "additionalProperties": False,
}


def note(call: PluginCall, arguments: dict[str, Any]) -> str:
    """What both tools do."""
    _write(LEDGER, f"{call.job_id} {call.call_id} {arguments['step']} {os.getpid()} {time.time()!r}")
    return f"noted {arguments['step']}"


def tell(event: dict[str, Any]) -> None:
    """The hook: told of each end."""
    _write(HOOK_LEDGER, f"{event['job']['id']} {event['event_id']}")


def _write(variable: str, line: str) -> None:
    """One line in one write: a death leaves it whole or not at all."""
    ledger = os.open(os.environ[variable], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{line}\n".encode())
    finally:
        os.close(ledger)


TOOLS = [
    PluginTool("count", "Counts; harmless to repeat.", SCHEMA, note, Risk.READ, CrashPolicy.REPEATABLE),
    PluginTool("mark", "Leaves a mark.", SCHEMA, note, Risk.READ, CrashPolicy.UNKNOWN_AFTER_CRASH),
]
