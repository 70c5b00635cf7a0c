"""The demo's end: what the kill did to the job, counted in the database; the result; what to try next."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli import hints, render
from jobs.cli.demo_folder import LEASE_SECONDS
from jobs.cli.demo_story import show_cut, wrapped
from jobs.errors import SostenutoError
from storage.records import Message

if TYPE_CHECKING:
    from jobs.installation import Installation
    from jobs.settings import Settings
    from jobs.views import JobView

_RESULT_LINES = 16


@dataclass(frozen=True, slots=True)
class Kill:
    """What a killed worker left in the database: everything that was ever committed."""

    letter: str
    messages: list[Message]
    tool: str | None  # what ran at that moment; None: the model was being asked

    @property
    def steps(self) -> int:
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def told_uncertain(self) -> bool:
        """Whether the next worker may not run the call again by itself."""
        return self.tool in {"Bash", "Edit"}

    @property
    def committed(self) -> str:
        """In words: steps are the model's replies."""
        results = sum(message.role == "tool" for message in self.messages)
        return f"{_counted(self.steps, 'step')} and {_counted(results, 'tool result')}"


def account(installation: Installation, job: JobView, kill: Kill) -> None:
    """Tell what the kill did to the job. Raises SostenutoError should anything of it be lost."""
    from jobs.views import list_messages

    now = list_messages(installation, job.id)
    if now[: len(kill.messages)] != kill.messages:
        raise SostenutoError("what was committed before the kill is not there as it was")
    other = "B" if kill.letter == "A" else "A"
    render.line()
    render.line(("What happened", "bold"))
    wrapped(
        f"Worker {kill.letter} was killed with SIGKILL, which leaves no time to clean up. When its lease of "
        f"{LEASE_SECONDS} s had run out, worker {other} took the job and went on.",
        2,
    )
    render.line()
    _fact("lost", f"nothing: the {kill.committed} are there, unchanged")
    after = job.steps - kill.steps
    _fact(
        "repeated", f"none of them: {_counted(after, 'step')} came after the {kill.steps}, {job.steps} in all"
    )
    if kill.tool is None:
        _fact("asked again", "the one request that was under way: its reply had not come yet")
    elif kill.told_uncertain:
        _fact(
            "uncertain",
            f"the {kill.tool} call that ran at that moment. The agent was told that its outcome is unknown: it "
            "looks at what is there before it runs anything again",
        )
    else:
        _fact(
            "run again",
            f"the {kill.tool} call that was under way: it only reads, or writes a file as a whole",
        )


def show_end(folder: Path, settings: Settings) -> None:
    """The result, and commands that work as printed: nothing of the demo runs any more."""
    from jobs.installation import open_installation
    from jobs.views import list_jobs
    from jobs.workspace import workspace_path

    with open_installation(settings) as installation:
        job = list_jobs(installation, settings.owner, limit=1)[0]
    report = workspace_path(folder, job.id) / "output" / "report.md"
    if report.is_file():
        _show_result(report)
    environment = command_environment(folder)
    commands = {
        "how the job stands, and what it spent": f"show {render.short(job.id)}",
        "every message, also what the agent was told after the kill": f"transcript {render.short(job.id)}",
        "a broker and workers, to submit your own jobs to": "up",
    }
    render.line()
    render.line(("Try next", "bold"))
    for what, arguments in commands.items():
        render.line((f"  # {what}", "dim"))
        render.line((f"  {hints.command(arguments, environment)}", "cyan"))


def _show_result(report: Path) -> None:
    lines = report.read_text().strip().splitlines()
    render.line()
    render.line(("The result", "bold"))
    render.line((hints.short_path(report), "cyan"))
    render.line()
    for line in lines[:_RESULT_LINES]:
        show_cut(f"  {line}".rstrip())
    if len(lines) > _RESULT_LINES:
        render.line((f"  … {len(lines) - _RESULT_LINES} more lines", "dim"))


def command_environment(folder: Path) -> dict[str, str]:
    """What leads a command to the demo's installation from the current folder, whatever is configured there."""
    environment = {"SOSTENUTO_DATA_DIR": hints.short_path(folder)}
    if os.environ.get("SOSTENUTO_CONFIG") or Path("sostenuto.yaml").is_file():
        environment["SOSTENUTO_CONFIG"] = hints.short_path(folder / "sostenuto.yaml")
    return environment | dict.fromkeys(hints.hidden_environment(), "")  # empty counts as not set


def _fact(name: str, text: str) -> None:
    wrapped(text, 13, head=(f"  {name:<11}", "bold green" if name in {"lost", "repeated"} else "bold yellow"))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
