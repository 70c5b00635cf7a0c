"""Real worker processes, started as a user starts them, to be killed, frozen and asked to stop."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.processes import kill_tree, process_tree, signal_tree
from tests.servers.session import ServerSession
from tests.waiting import wait_until


class CommandProcess:
    """One running `sostenuto …` command with its children; both its outputs go to `log_path`."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self.log_path = log_path

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def pids(self) -> list[int]:
        """The command's process and its living descendants, the command first."""
        return process_tree(self.pid)

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, text: str, timeout: float = 60) -> None:
        """Wait until it has printed `text`; AssertionError when it ends without it."""

        def printed() -> bool:
            ended = self.returncode is not None
            if text in self.log():
                return True
            assert not ended, f"ended with {self.returncode} before printing {text!r}:\n{self.log()[-2000:]}"
            return False

        wait_until(printed, timeout, f"{text!r} in {self.log_path}")

    def kill(self) -> None:
        """SIGKILL to the command and all its descendants, as a power cut would end them."""
        kill_tree(self._process)

    def kill_only(self) -> None:
        """SIGKILL to the command's own process; its children must notice by themselves."""
        self._process.kill()
        self._process.wait(timeout=30)

    def term(self) -> None:
        """SIGTERM to the command's own process, as a supervisor sends it; does not wait."""
        self._process.send_signal(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Any signal to the command's own process."""
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """SIGINT to the command and its descendants, as Ctrl-C in a terminal does; does not wait."""
        signal_tree(self.pid, signal.SIGINT)

    def stop(self) -> None:
        """SIGSTOP to the command and its descendants: alive, but doing nothing."""
        signal_tree(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT after a stop."""
        signal_tree(self.pid, signal.SIGCONT)

    def wait(self, timeout: float = 60) -> int:
        """Wait for its end and return the exit code."""
        return self._process.wait(timeout)


class CommandFactory:
    """Starts `sostenuto` commands for one test; `close` kills them and whatever they left behind."""

    def __init__(self, session: ServerSession, submark: str, env: Mapping[str, str]) -> None:
        self._session = session
        self._submark = submark
        self._env = dict(env)
        self._folder = session.new_folder("commands")
        self._numbers = itertools.count(1)
        self.started: list[CommandProcess] = []

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None) -> CommandProcess:
        """Start `sostenuto worker ARGUMENTS`. `env` is added to the test's environment."""
        return self.run("worker", *arguments, env=env)

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> CommandProcess:
        """Start `sostenuto ARGUMENTS` in an empty folder of its own; `prefix` is a program that starts it."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        log = folder / "output.log"
        process = self._session.spawn(
            [*prefix, Path(sys.executable).with_name("sostenuto"), *arguments],
            log,
            env={**self._env, "PYTHONUNBUFFERED": "1", **(env or {})},
            submark=self._submark,
            cwd=folder,
        )
        command = CommandProcess(process, log)
        self.started.append(command)
        return command

    def close(self) -> None:
        """End all of them, detached grandchildren included."""
        for command in self.started:
            command.kill()
        if self.started:
            self._session.reap(self._submark)
