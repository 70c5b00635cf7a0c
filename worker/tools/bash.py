"""Bash: a command in the job's sandbox."""

from __future__ import annotations

from typing import Any, ClassVar

from worker.cancel import Cancelled
from worker.sandbox.base import Ending, Outcome, SandboxUnavailable
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.output import Output
from worker.tools.text import mend_surrogates

SHELL = "/bin/bash"
_LONGEST = 100_000  # the kernel takes 128 KiB for one argument


class Bash:
    """Nobody knows what a command had done when its worker died, so it is never run again on its own."""

    name = "Bash"
    description = (
        "Run a bash command in the workspace, in a sandbox: no network, the rest of the machine is read-only or "
        "hidden, and every process ends with the command. Each command is a new shell. stdout and stderr come "
        "together; output that is too long is cut in the middle: use head, tail, grep, awk or sed to see less."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "seconds, at most"},
        },
        "required": ["command"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.UNKNOWN_AFTER_CRASH
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        if context.sandbox is None:
            raise SandboxUnavailable("this worker has no sandbox, so it runs no commands")
        command = mend_surrogates(arguments["command"])
        if "\0" in command:
            return ToolResult("Error: a command cannot contain NUL", is_error=True)
        if len(command.encode()) > _LONGEST:
            told = f"Error: a command may have {_LONGEST} bytes. Write a script with Write and run that."
            return ToolResult(told, is_error=True)
        timeout = min(arguments.get("timeout", context.bash_timeout), context.bash_timeout)
        output = Output(context.budget_tokens)
        outcome = context.sandbox.run(
            [SHELL, "-c", command],
            workspace=context.workspace,
            timeout=timeout,
            cancel=context.cancel,
            on_output=output.feed,
        )
        if outcome.ending is Ending.CANCELLED:
            raise Cancelled(context.cancel.reason or "cancel")
        told = _ending(outcome, timeout)
        text = output.text().rstrip("\n")
        content = f"{text}\n{told}" if text and told else text or told or "[no output]"
        return ToolResult(content, is_error=bool(told))


def _ending(outcome: Outcome, timeout: float) -> str:
    match outcome.ending:
        case Ending.TIMEOUT:
            return f"[timed out after {timeout:g} s; all its processes were killed]"
        case Ending.MEMORY:
            return "[killed: it used more memory than a command may]"
        case Ending.PROCESSES:
            return "[killed: it started more processes than a command may]"
        case Ending.DISK:
            return "[killed: the workspace has more bytes or files than it may; delete some]"
        case _ if outcome.exit_code:
            return f"[exit code {outcome.exit_code}]"
    return ""
