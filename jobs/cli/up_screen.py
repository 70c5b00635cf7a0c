"""What `sostenuto up` tells: sentences with the time, and on a terminal first what runs and how to use it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jobs.cli import hints, render
from jobs.cli.text import one_line, to_json
from jobs.cli.web import login_facts
from jobs.supervisor import Change, Happening, WebSpec, WorkerChild, ending_text
from jobs.wakeups import AGENT_QUEUE

if TYPE_CHECKING:
    from jobs.embedded import BrokerHandle
    from jobs.settings import Settings


class Screen:
    """Quiet in a pipe, where only what happens is told; with --json each of it is one object a line."""

    def __init__(self, *, json: bool) -> None:
        self._json = json

    def say(self, event: str, text: str, style: str = "", **data: Any) -> None:
        """Tell one thing that happened; `event` and `data` are for programs."""
        if self._json:
            print(to_json({"event": event, "at": time.time(), "text": text, **data}, indent=None), flush=True)
            return
        render.line((f"{time.strftime('%H:%M:%S')}  ", "dim"), (text, style))
        sys.stdout.flush()

    def tell(self, happening: Happening) -> None:
        """Tell what happened to a worker, or to the web server."""
        what = "the web server" if happening.name == "web" else f"worker {happening.name}"
        who = f"{what} (pid {happening.pid})"
        data: dict[str, Any] = {"worker": happening.name, "pid": happening.pid}
        if happening.change is Change.READY:
            self.say("worker_ready", f"{who} is ready", "green", **data)
        elif happening.change is Change.STARTED_AGAIN:
            self.say("worker_started_again", f"{who} was started in its place", **data)
        elif happening.change is Change.DRAINED:
            self.say("worker_drained", f"{who} has left, as it was asked to; the next `up` starts it", **data)
        else:
            assert happening.exit_code is not None
            when = f"; next start in {happening.pause:g} s" if happening.pause else ""
            data |= {"exit_code": happening.exit_code, "pause": happening.pause, "log": happening.last_words}
            self.say("worker_died", f"{who} {ending_text(happening.exit_code)}{when}", "yellow", **data)
            if happening.last_words and not self._json:
                render.line((f"{'':10}{one_line(happening.last_words, _width() - 10)}", "dim"))

    def show_up(
        self, settings: Settings, broker: BrokerHandle | None, children: Sequence[WorkerChild]
    ) -> None:
        """Tell what was started, and how to use it."""
        workers = [child for child in children if not isinstance(child.spec, WebSpec)]
        pids = [child.pid for child in workers if AGENT_QUEUE in child.spec.queues]
        others = [child.pid for child in workers if AGENT_QUEUE not in child.spec.queues]
        url = next((child.node for child in children if isinstance(child.spec, WebSpec)), None)
        processes = counted(len(pids), "process", "processes")
        facts = {
            "data": _data_text(settings, broker),
            "model": _model_text(settings),
            "sandbox": _sandbox_text(settings, pids + others),
            "workers": f"{processes} (pid {listed(pids)}) for {counted(settings.concurrency, 'agent', 'agents')} each"
            + (f", and one for summaries (pid {listed(others)})" if others else ""),
            "logs": hints.short_path(settings.data_dir / "logs"),
        }
        if self._json or not render.on_terminal():
            told = f"up: {facts['workers']}; {facts['data']}" + (f"; page: {url}" if url else "")
            self.say("up", told, pids=pids + others, url=url, **facts)
            return
        render.line()
        render.line(("Sostenuto is up.", "bold green"), " Ctrl-C stops it; jobs go on at its next start.")
        render.line()
        for name, fact in facts.items():
            render.line((f"  {name:<9}", "dim"), one_line(fact, _width() - 11))
        if url is not None:
            render.line()
            for name, fact in _login_facts(settings, url).items():
                render.line((f"  {name:<9}", "dim"), fact)
        render.line()
        render.line("Try in another terminal, in this folder:")
        environment = hints.shown_environment()
        for arguments in (
            'submit --wait "Write a haiku about rain to output/haiku.md"',
            "list",
            "pieces list",
        ):
            render.line(("  " + hints.command(arguments, environment), "cyan"))
        if hidden := hints.hidden_environment():
            render.line((f"  (with the same {' and '.join(hidden)})", "dim"))
        render.line()
        sys.stdout.flush()


def _width() -> int:
    return max(40, render.console().width)


def slow_text(settings: Settings) -> str:
    """For a start that takes long: what may be missing, and where to look."""
    logs = hints.short_path(settings.data_dir / "logs")
    if settings.embedded_broker:
        return f"the workers take long to start; their logs are in {logs}"
    return f"still starting: does the broker answer? The workers go on trying, their logs are in {logs}"


def _data_text(settings: Settings, broker: BrokerHandle | None) -> str:
    database = "SQLite" if settings.uses_sqlite else f"Postgres on {urlsplit(settings.database_url).hostname}"
    if broker is not None:
        messages = "message files" if broker.pid is None else f"a private broker (pid {broker.pid})"
    else:
        parts = urlsplit(settings.broker_url or "")
        messages = f"the broker at {parts.hostname or parts.path}"
    return f"{hints.short_path(settings.data_dir)}, with {database} and {messages}"


def _model_text(settings: Settings) -> str:
    if settings.model is None:
        return "none yet: SOSTENUTO_MODEL names one, with OPENAI_API_KEY or OPENAI_BASE_URL"
    if settings.model.startswith("scripted:"):
        return f"scripted: {hints.short_path(Path(settings.model.removeprefix('scripted:')))}"
    host = urlsplit(settings.openai_base_url).hostname if settings.openai_base_url else "api.openai.com"
    return f"{one_line(settings.model, 100)} at {host}"


def _sandbox_text(settings: Settings, pids: Sequence[int]) -> str:
    """What the workers themselves published about it."""
    from jobs.installation import open_installation
    from storage.registry import live_workers

    with open_installation(settings) as installation:
        found = live_workers(installation.db, fresh_seconds=2 * settings.lease_seconds)
    return next((str(worker["sandbox"]) for worker in found if worker["pid"] in pids), "not known")


def _login_facts(settings: Settings, url: str) -> dict[str, str]:
    from jobs.audit import Source, coming_from
    from jobs.installation import open_installation

    with open_installation(settings) as installation, coming_from(Source("cli")):
        return login_facts(installation, url)


def counted(number: int, one: str, many: str) -> str:
    """`1 agent`, `2 agents`."""
    return f"{number} {one if number == 1 else many}"


def listed(pids: Sequence[int]) -> str:
    """Process ids for a sentence."""
    return ", ".join(map(str, pids))
