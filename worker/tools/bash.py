"""Bash: a command in the job's sandbox."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar

from jobs.errors import FileRejected
from jobs.plain_text import one_line
from storage.masking import StreamMask
from worker.cancel import Cancelled
from worker.sandbox.base import Ending, Level, Outcome, Sandbox, SandboxUnavailable
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.output import Output, plain
from worker.tools.paths import SANDBOX_ROOT, relative_path
from worker.tools.spill import MOST_SPILLED, Spool, spill
from worker.tools.text import mend_surrogates

SHELL = "/bin/bash"
_LONGEST = 100_000  # the kernel takes 128 KiB for one argument
_LONGEST_REPORT = 8192

# Runs the command in the folder where the last one ended, and says at its end where it ended itself and how much it left
# running. The report goes where the output went at first, whatever the command redirected; MARK is a random word. A
# command that replaces the shell, or its exit trap, has no report, and changes no folder.
_SCRIPT = (  # one line, so that the command's own lines are counted from 1
    '[ -z "$1" ] || cd -- "./$1" 2>/dev/null || echo "[$1 is gone: this command began in the workspace]"; '
    "exec {__report}>&1; "
    """trap '{ set +xefu; IFS=" "; } 2>/dev/null; """
    """{ builtin printf "\\nMARK %s %s\\0" "LEFT" "$PWD"; } >&$__report 2>/dev/null' EXIT; """
    '__command=$2; set --; eval "unset __command; $__command"'
)
# Where the command has a process namespace of its own, all that is left in it; else what the shell knows of.
_COUNT_PROCESSES = (
    "$(n=0; for p in /proc/[0-9]*; do case ${p#/proc/} in 1|$$|$BASHPID) continue;; esac; "
    "if builtin read -r s < $p/stat; then s=${s##*) }; case ${s%% *} in Z|X) ;; *) n=$((n+1));; esac; fi; done; "
    "builtin printf %s $n)"
)
_COUNT_JOBS = '$(set -- $(jobs -rp | tr "\\n" " "); builtin printf %s $#)'
_REPORT = re.compile(r" (\d{1,9}) (/[^\0]*)\0")


class Bash:
    """Nobody knows what a command had done when its worker died, so it is never run again on its own."""

    name = "Bash"
    description = (
        "Run a bash command in the workspace, in a sandbox: no network, the rest of the machine is read-only or "
        "hidden, and every process ends with the command, also those in the background. Each command is a new shell; "
        "it begins in the folder where the last one ended (at first /workspace), nothing else of it is kept. stdout and "
        "stderr come together; output that is too long is cut in the middle, and all of it kept in a file that the result "
        "names: use head, tail, grep, awk or sed to see less."
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
        with closing(Spool()) as spool:
            return self._run(context, context.sandbox, command, timeout, spool)

    def _run(
        self,
        context: ToolContext,
        sandbox: Sandbox,
        command: str,
        timeout: float,
        spool: Spool,
    ) -> ToolResult:
        output = Output(context.budget_tokens)

        def printed(data: bytes) -> None:
            output.feed(data)
            spool.feed(data)

        masked = StreamMask(printed)  # before anything is cut: half a secret could not be told
        mark = secrets.token_hex(16)
        reader = _ReportReader(mark.encode(), masked.feed)
        own_processes = sandbox.level is Level.BWRAP
        count = _COUNT_PROCESSES if own_processes else _COUNT_JOBS
        script = _SCRIPT.replace("LEFT", count).replace("MARK", mark)
        outcome = sandbox.run(
            [SHELL, "-c", script, "bash", context.folder, command],
            workspace=context.workspace,
            timeout=timeout,
            cancel=context.cancel,
            on_output=reader.feed,
        )
        if outcome.ending is Ending.CANCELLED:
            raise Cancelled(context.cancel.reason or "cancel")
        left, ended_in = reader.end()
        masked.end()
        failure = _ending(outcome, timeout)
        folder, moved = _next_folder(context, ended_in)
        killed = f"[{left} of its processes were still running, and were killed]" if left else ""
        told = "\n".join(note for note in (failure, killed, moved) if note)
        text = output.text(lambda: _kept(spool, context)).rstrip("\n")
        content = f"{text}\n{told}" if text and told else text or told or "[no output]"
        return ToolResult(content, is_error=bool(failure), folder=folder)


def _kept(spool: Spool, context: ToolContext) -> str | None:
    """Writes what was printed into the workspace, and says where it is."""
    printed = spool.content()
    path = None if printed is None else spill(plain(printed), context)
    if path is None:
        return None
    return (
        f"All of it is in {path}" if spool.is_whole else f"The first {MOST_SPILLED >> 20} MiB are in {path}"
    )


class _ReportReader:
    """Takes the report off the end of what is printed. What looks like one and is followed by more is output."""

    def __init__(self, mark: bytes, on_output: Callable[[bytes], None]) -> None:
        self._mark = b"\n" + mark
        self._on_output = on_output
        self._held = b""

    def feed(self, data: bytes) -> None:
        data = self._held + data
        at = data.rfind(self._mark)
        if at < 0:  # it may have begun
            at = max(len(data) - len(self._mark), 0)
        elif len(data) - at > _LONGEST_REPORT:
            at = len(data)
        if at:
            self._on_output(data[:at])
        self._held = data[at:]

    def end(self) -> tuple[int, str | None]:
        """How many processes were left, and where the shell ended; (0, None) without a report."""
        if self._held.startswith(self._mark):
            report = self._held[len(self._mark) :].decode("utf-8", "replace")
            if found := _REPORT.fullmatch(report):
                return int(found[1]), found[2]
        self._on_output(self._held)
        return 0, None


def _next_folder(context: ToolContext, ended_in: str | None) -> tuple[str | None, str]:
    """Where the next command begins, None if as before; and what the model is told of it."""
    if ended_in is None:
        return None, ""
    try:
        folder = relative_path(context, ended_in)
    except FileRejected:
        begins = f"{SANDBOX_ROOT}/{context.folder}".rstrip("/")
        return None, f"[the next command begins in {begins}: it ended outside of the workspace]"
    if folder == context.folder:
        return None, ""
    begins = one_line(f"{SANDBOX_ROOT}/{folder}".rstrip("/"))
    return folder, f"[the next command begins in {begins}]"


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
