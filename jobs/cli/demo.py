"""`sostenuto demo`: a real job on real data, whose worker is killed in the middle, and which goes on elsewhere.

Everything here is what users have: worker processes, the database, `submit`, a reply, SIGKILL. The figures at the end
are counted in the database.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import hints, render
from jobs.cli.context import load
from jobs.cli.demo_end import Kill, account, command_environment, show_end
from jobs.cli.demo_folder import (
    EXAMPLE,
    INPUTS,
    LEASE_SECONDS,
    DemoModel,
    choose_model,
    claim_folder,
    demo_environment,
    fill_folder,
)
from jobs.cli.demo_story import Story, wrapped
from jobs.cli.following import Update, follow
from jobs.errors import JobDidNotSucceed, SostenutoError
from jobs.states import State
from jobs.supervisor import POLL_SECONDS, STOP_MARGIN, Supervisor, WorkerChild, WorkerSpec
from jobs.wakeups import QUEUES
from storage.records import Message

if TYPE_CHECKING:
    from jobs.installation import Installation
    from jobs.settings import Settings
    from jobs.views import JobView

INSTRUCTION = "Write the rainfall report that input/指示.txt asks for, on the two tables in input/."
START_SECONDS = 60.0
SILENCE_SECONDS = 90.0  # of the script, whose longest step takes five
SILENCE_OF_A_MODEL_SECONDS = 1800.0
ANSWER_AFTER_SECONDS = 1.5
STEPS_BEFORE_KILL = 4


def demo(
    folder: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Its data folder, made anew.")
    ] = Path("sostenuto-demo"),
    answer: Annotated[
        str, typer.Option("--answer", metavar="TEXT", help="What it answers to the agent's question.")
    ] = "millimetres",
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Answer the agent's question yourself.")
    ] = False,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a worker in the middle.")] = True,
) -> None:
    """See a job survive its worker. Half a minute, no key needed: kill -9 in the middle of a step."""
    from jobs.owner_record import end_left_overs, owned

    folder = folder.expanduser().absolute()
    claim_folder(folder)
    with owned(folder, "sostenuto demo") as record, _ended_in_order():
        end_left_overs(record.left_over_workers(), seconds=STOP_MARGIN)
        fill_folder(folder)
        model = choose_model(os.environ)
        environment = demo_environment(folder, model, os.environ)
        settings = load(environment)
        supervisor = Supervisor(
            [
                WorkerSpec(
                    f"worker-{letter}",
                    folder / "logs" / f"worker-{letter}.log",
                    QUEUES,
                    environment=environment,
                )
                for letter in "AB"
            ]
        )
        render.line(("A job that survives its worker", "bold"))
        render.line()
        try:
            supervisor.start()
            record.write(supervisor.marks())
            _Demo(settings, supervisor, model, None if interactive else answer, kill=kill).run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # stopping takes a moment, and is what was asked for
            supervisor.stop(settings.grace_seconds)
    show_end(folder, settings)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that what was started is stopped."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Demo:
    """One job, from its submission to its end."""

    def __init__(
        self, settings: Settings, supervisor: Supervisor, model: DemoModel, answer: str | None, *, kill: bool
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._model = model
        self._answer = answer
        self._to_be_killed = kill
        self._killed: Kill | None = None
        self._story = Story({})

    def run(self) -> None:
        """Tells it as it happens. Raises SostenutoError where the job does not come to a good end."""
        from jobs.installation import open_installation

        with open_installation(self._settings) as installation:
            self._await_workers()
            self._introduce(installation)
            job = self._follow_to_the_end(installation, self._submit(installation))
            if self._killed is not None:
                account(installation, job, self._killed)
            elif self._to_be_killed:
                raise SostenutoError("the job was over before a worker could be killed", hint="run it again")

    # --- the beginning ---

    def _await_workers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._supervisor.all_ready:
            self._supervisor.look()
            if time.monotonic() > deadline:
                logs = hints.short_path(self._settings.data_dir / "logs")
                raise SostenutoError("the workers do not start", hint=f"see their logs in {logs}")
            time.sleep(POLL_SECONDS)
        letters = {child.node: child.spec.name[-1] for child in self._supervisor.children}
        self._story = Story({node: letter for node, letter in letters.items() if node})

    def _introduce(self, installation: Installation) -> None:
        from storage.registry import live_workers

        pids = " and ".join(f"{child.spec.name[-1]} (pid {child.pid})" for child in self._supervisor.children)
        sandbox = live_workers(installation.db, fresh_seconds=60)[0]["sandbox"]
        model = "scripted: its replies come from a file, no key is needed"
        facts = {
            "folder": f"{hints.short_path(self._settings.data_dir)}: SQLite and a private broker, nothing to install",
            "workers": f"two processes of `sostenuto worker`: {pids}",
            "lease": f"{LEASE_SECONDS} s (15 s by default): a worker silent for so long loses its job",
            "sandbox": sandbox.partition(":")[0],
            "model": self._model.name or model,
        }
        for name, fact in facts.items():
            render.line((f"  {name:<9}", "dim"), fact)
        if self._model.note:
            wrapped(f"{self._model.note}: so the script answers.", 11, "yellow")
        elif self._model.name is None:
            render.line((f"{'':11}For a real one set OPENAI_API_KEY and SOSTENUTO_MODEL.", "dim"))
        render.line()

    def _submit(self, installation: Installation) -> str:
        from jobs.submit import SubmitRequest, submit
        from jobs.workspace import InputFile

        files = [InputFile(name, EXAMPLE / name) for name in INPUTS]
        request = SubmitRequest(INSTRUCTION, piece="rainfall", files=files)
        job = submit(installation, request, self._settings.owner).job
        self._story.say("you", f"submit job {render.short(job.id)} with {', '.join(INPUTS)}:")
        self._story.more(f"“{INSTRUCTION}”", "italic", indent=16)
        return job.id

    # --- the middle ---

    def _follow_to_the_end(self, installation: Installation, job_id: str) -> JobView:
        told_event = told_message = 0
        while True:
            update = None
            for update in self._guarded(follow(installation, job_id)):
                update.news = [
                    item
                    for item in update.news
                    if item.seq > (told_message if isinstance(item, Message) else told_event)
                ]
                for item in update.news:
                    if isinstance(item, Message):
                        told_message = item.seq
                    else:
                        told_event = item.seq
                self._story.tell(update)
                self._kill_if_due(installation, update)
            assert update is not None  # follow yields at least once
            if update.job.state != State.WAITING_HUMAN:
                break
            self._reply(installation, update.job)
        if update.job.state != State.SUCCEEDED:
            text = render.state_text(update.job)
            hint = hints.command(f"show {render.short(job_id)}", command_environment(self._settings.data_dir))
            raise JobDidNotSucceed(f"the job did not succeed: {text}", hint=f"look at it: {hint}")
        self._story.say("", "succeeded", "bold green")
        return update.job

    def _guarded(self, updates: Iterator[Update]) -> Iterator[Update]:
        """The updates; raises SostenutoError when nothing can come any more."""
        scripted = self._model.name is None
        longest = SILENCE_SECONDS if scripted else SILENCE_OF_A_MODEL_SECONDS
        last_news = time.monotonic()
        for update in updates:
            if update.news:
                last_news = time.monotonic()
            yield update
            logs = hints.short_path(self._settings.data_dir / "logs")
            if all(child.poll() is not None for child in self._supervisor.children):
                raise SostenutoError("both workers have died", hint=f"see their logs in {logs}")
            if time.monotonic() - last_news > longest:
                raise SostenutoError(
                    f"nothing has happened for {longest:g} s", hint=f"see the logs of the workers in {logs}"
                )

    def _reply(self, installation: Installation, job: JobView) -> None:
        from jobs.comments import reply

        if self._answer is None:
            text = typer.prompt("Your answer", default="millimetres")
            told = f"answer: {text}"
        else:
            time.sleep(ANSWER_AFTER_SECONDS)  # long enough to read the question; no worker is held meanwhile
            text, told = self._answer, f"answer (the demo does it for you): {self._answer}"
        reply(installation, job.id, job.owner, text, "you")
        self._story.say("you", told)

    def _kill_if_due(self, installation: Installation, update: Update) -> None:
        if not self._to_be_killed or self._killed or update.job.state != State.RUNNING:
            return
        from jobs.views import list_messages

        messages = list_messages(installation, update.job.id)
        tool = _open_call(messages)
        steps_done = sum(message.role == "assistant" for message in messages)
        # The script's command dawdles. A real model's are quick: there it is more often the model that is being asked.
        due = tool == "Bash" or (self._model.name is not None and tool is None)
        if steps_done < STEPS_BEFORE_KILL or not due:
            return
        victim = self._worker(update.job.worker)
        if victim is None:
            return
        victim.signal(signal.SIGKILL)
        victim.wait()
        letter = victim.spec.name[-1]
        left = list_messages(installation, update.job.id)
        self._killed = Kill(letter, left, _open_call(left))
        doing = f"{self._killed.tool} runs" if self._killed.tool else "the model is being asked"
        self._story.say("KILL", f"kill -9 {victim.pid}: worker {letter} dies while {doing}", "bold red")
        self._story.more(f"{self._killed.committed} are in the database", "red", indent=16)

    def _worker(self, node: str | None) -> WorkerChild | None:
        return next((child for child in self._supervisor.children if node and child.node == node), None)


def _open_call(messages: Sequence[Message]) -> str | None:
    """The tool that runs now: the first call of the last reply that has no result yet."""
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    replies = [message for message in messages if message.role == "assistant"]
    calls = (replies[-1].tool_calls or []) if replies else []
    return next((str(call["name"]) for call in calls if call["id"] not in answered), None)
