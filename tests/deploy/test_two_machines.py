"""Two machines that share only the data folder, Postgres and Redis: one dies in the middle of a job, the other goes on.

Each machine is a mount, pid and uts namespace: a name of its own, its own processes (the two workers even have the same
process id), its own /tmp, and of this machine's files the system and this program, read-only. Neither sees the other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobs.states import State
from storage.registry import live_workers
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, running, story
from tests.servers.workers import CommandProcess
from tests.test_repository import ROOT
from tests.waiting import wait_until
from worker.sandbox.bwrap import find_bwrap

READY = "is ready: queues"
LEASE = {"SOSTENUTO_LEASE_SECONDS": "3", "SOSTENUTO_SWEEP_SECONDS": "0.2"}


class Machine:
    """Starts commands in a place of its own."""

    def __init__(self, name: str, bench: Bench, own: Path) -> None:
        self._bench = bench
        self._name = name
        self.own = own  # what is only on this machine

    def start(self, *arguments: str) -> CommandProcess:
        data = str(self._bench.installation.settings.data_dir)
        ours = {str(Path(path).resolve()) for path in (ROOT, sys.prefix, sys.base_prefix)}
        program = [
            str(find_bwrap()),
            "--unshare-pid",
            "--unshare-uts",
            "--hostname",
            self._name,
            "--die-with-parent",
        ]
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"):
            program += ["--ro-bind-try", folder, folder]
        # Its own first: the shared folders may lie below it.
        program += ["--bind", str(self.own), "/tmp", "--proc", "/proc", "--dev", "/dev"]
        if Path("/sys/fs/cgroup").is_dir():
            program += ["--ro-bind", "/sys", "/sys"]
        for folder in sorted(ours):
            program += ["--ro-bind", folder, folder]
        program += ["--bind", data, data, "--chdir", "/tmp"]
        return self._bench.commands.run(*arguments, env=self._bench.env(TMPDIR="/tmp"), prefix=program)


@pytest.fixture
def machines(bench: Bench, tmp_path: Path) -> tuple[Machine, Machine]:
    bench.environment |= LEASE
    made = []
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        made.append(Machine(name, bench, tmp_path / name))
    return made[0], made[1]


@pytest.mark.parametrize("migrated_url", ["postgres"], indirect=True)
def test_a_job_goes_on_on_the_other_machine_with_its_workspace(
    bench: Bench, machines: tuple[Machine, Machine]
) -> None:
    alpha, beta = machines
    command, words = endless_command()
    bench.endpoint.mind = story(
        bash("cat input/facts.txt > output/copy.txt"),
        bash(f"echo begun >> output/effects.txt; touch output/begun; {command}"),
        bash("cat output/copy.txt output/effects.txt"),
        COMPLETE,
    )
    first = alpha.start("worker", "--name", "first@alpha")
    first.wait_for_log(READY)
    bench.write_pieces()
    facts = alpha.own.parent / "facts.txt"
    facts.write_text("six times seven\n")
    job_id = bench.cli("submit", "--piece", "plain", "--file", str(facts), "Do it.").strip()
    bench.wait_file(job_id, "begun")
    second = beta.start("worker", "--name", "second@beta")
    second.wait_for_log(READY)
    assert running(words)
    first.kill()  # SIGKILL: the machine is gone, with all that ran on it
    wait_until(lambda: not running(words), 10, "nothing of the command is left")

    view = bench.wait_ended(job_id)
    assert view.state == State.SUCCEEDED, second.log()
    first_run, *later = [
        run["worker"] for run in bench.runs(job_id)
    ]  # a suspect's slices are short: maybe several
    assert (first_run, set(later)) == ("first@alpha", {"second@beta"})
    assert bench.deaths(job_id) == 1
    results = [str(message.content) for message in bench.messages(job_id) if message.role == "tool"]
    assert "Interrupted" in results[1], "nobody knows whether it had done its work"
    assert "six times seven\nbegun" in results[2], "the files are where they were"
    assert bench.effects(job_id) == 1, "and nothing was done twice"
    bench.assert_sound(job_id)
    told = [(worker["host"], worker["pid"]) for worker in live_workers(bench.installation.db, 600)]
    assert told == [("alpha", told[0][1]), ("beta", told[0][1])], "each is process 2 of its own machine"
