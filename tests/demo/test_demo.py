"""`sostenuto demo` from end to end: what it prints, what it leaves, and how it ends when it cannot go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.demo.figures import expected, reported, unit_named
from tests.demo.recording import RECORDING, ROOT, constant
from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK, marked_processes
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import StrictEndpoint, script_mind
from tests.waiting import wait_until
from worker.model.script import Script

EXAMPLE = ROOT / "examples" / "rainfall"
TABLES = (EXAMPLE / "tokyo.csv", EXAMPLE / "heathrow.csv")


@dataclass(frozen=True, slots=True)
class Ran:
    """A demo that has ended."""

    folder: Path  # where it was started
    mark: str
    code: int
    out: str
    err: str

    @property
    def report(self) -> str:
        (file,) = self.folder.glob("sostenuto-demo/workspaces/*/output/report.md")
        return file.read_text()


def _environment(mark: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SOSTENUTO_", "OPENAI_"))
    }
    return {**kept, MARK: mark, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run_demo(session: ServerSession, *arguments: str, typed: str = "", **env: str) -> Ran:
    folder = session.new_folder("demo")
    mark = f"{session.mark}/{folder.name}"
    command = ["sostenuto", "demo", *arguments]
    environment = {**_environment(mark), **env}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=typed, capture_output=True, text=True, check=False,
        timeout=170,
    )  # fmt: skip
    return Ran(folder, mark, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def demo(server_session: ServerSession) -> Iterator[Ran]:
    """One demo as `make demo` runs it, looked at by several tests."""
    ran = run_demo(server_session)
    yield ran
    server_session.reap(ran.folder.name)


def test_it_succeeds_and_leaves_no_process(demo: Ran) -> None:
    assert (demo.code, demo.err) == (0, ""), demo.out + demo.err
    assert marked_processes(demo.mark, str(demo.folder)) == []


def test_it_prints_what_the_documentation_shows(demo: Ran) -> None:
    """After a change: .venv/bin/python -m tests.demo.recording"""
    assert constant("$ make demo\n" + demo.out) == constant(RECORDING.read_text())


def test_it_fits_eighty_columns_and_has_no_colours_in_a_pipe(demo: Ran) -> None:
    wide = [line for line in demo.out.splitlines() if cell_len(line) > 80]
    assert wide == []
    assert "\x1b" not in demo.out


def test_a_worker_was_killed_in_a_command_and_the_other_went_on(demo: Ran) -> None:
    killed = re.search(r"kill -9 (\d+): worker ([AB]) dies while Bash runs", demo.out)
    assert killed, demo.out
    assert f"{killed[2]} (pid {killed[1]})" in demo.out
    other = "B" if killed[2] == "A" else "A"
    after = demo.out[killed.end() :]
    assert f"the lease of worker {killed[2]} has run out" in after
    assert re.search(rf"  {other}  +takes the job and goes on after step 6", after)
    assert f"  {killed[2]}  " not in after.partition("What happened")[0]
    steps = [int(number) for number in re.findall(r"step (\d+) ", demo.out.partition("What happened")[0])]
    assert re.findall(r"step \d+ ", demo.out)
    assert sorted(set(steps)) == list(range(1, 12))


def test_the_reports_figures_are_those_of_the_input(demo: Ran) -> None:
    assert unit_named(demo.report) == "millimetres"
    assert reported(demo.report) == tuple(expected(table, "mm") for table in TABLES)


def test_the_end_of_the_output_is_the_report(demo: Ran) -> None:
    shown = demo.out.partition("The result\n")[2].partition("\nTry next")[0]
    path, _, lines = shown.partition("\n")
    assert (demo.folder / path).read_text() == demo.report
    assert [line.strip() for line in lines.strip().splitlines()] == demo.report.strip().splitlines()


def test_the_commands_to_try_next_work_as_printed(demo: Ran, server_session: ServerSession) -> None:
    printed = demo.out.partition("Try next\n")[2].splitlines()
    show, transcript, up = [line.strip() for line in printed if not line.strip().startswith("#")]
    for command, wanted in ((show, "succeeded"), (transcript, "Interrupted: the worker died")):
        done = subprocess.run(
            ["bash", "-c", command], cwd=demo.folder, env=_environment(demo.mark), capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert wanted in done.stdout
    log = demo.folder / "up.log"
    process = server_session.spawn(
        ["bash", "-c", f"exec env {up}"], log, env=_environment(demo.mark), submark=demo.folder.name,
        cwd=demo.folder,
    )  # fmt: skip
    wait_until(lambda: "  up: " in log.read_text(), 60, "it is up")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_person_may_answer_and_the_answer_changes_the_report(server_session: ServerSession) -> None:
    ran = run_demo(server_session, "--interactive", "--no-kill", typed="inches, please\n")
    assert ran.code == 0, ran.out + ran.err
    assert "KILL" not in ran.out
    assert "What happened" not in ran.out
    assert unit_named(ran.report) == "inches"
    assert reported(ran.report) == tuple(expected(table, "inches") for table in TABLES)


def test_a_real_endpoint_answers_where_one_is_configured(server_session: ServerSession) -> None:
    """It refuses what the pickiest real server refuses; what it says is in the script, as no model is at hand."""
    script = Script.load(EXAMPLE / "script.yaml")
    with StrictEndpoint(script_mind(script)) as endpoint:
        ran = run_demo(
            server_session, OPENAI_BASE_URL=endpoint.url, OPENAI_API_KEY="k-demo-secret",
            SOSTENUTO_MODEL="some-model",
        )  # fmt: skip
        assert endpoint.violations == []
        assert ran.code == 0, ran.out + ran.err
    assert "  model    some-model\n" in ran.out
    assert "scripted" not in ran.out
    assert "kill -9" in ran.out
    assert "k-demo-secret" not in ran.out
    assert reported(ran.report) == tuple(expected(table, "mm") for table in TABLES)


def test_an_endpoint_without_a_models_name_is_told(worker_process: CommandFactory) -> None:
    command = worker_process.run("demo", env={"OPENAI_API_KEY": "k"})
    command.wait_for_log("an endpoint is set, but SOSTENUTO_MODEL names no model")
    assert "  model    scripted" in command.log()


def test_ctrl_c_stops_everything(worker_process: CommandFactory) -> None:
    command = worker_process.run("demo")
    command.wait_for_log("step 1 ")
    everything = command.pids()
    os.kill(command.pid, signal.SIGINT)
    assert command.wait() == 130
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everything), 60, "all have ended")


def test_workers_that_die_end_it_with_a_reason(worker_process: CommandFactory) -> None:
    command = worker_process.run("demo")
    command.wait_for_log("step 1 ")
    for pid in re.findall(r"[AB] \(pid (\d+)\)", command.log()):
        os.kill(int(pid), signal.SIGKILL)
    assert command.wait() == 1
    assert "error: both workers have died (see their logs in sostenuto-demo/logs)" in command.log()


def test_an_earlier_demos_folder_is_replaced_and_any_other_refused(
    worker_process: CommandFactory, tmp_path: Path
) -> None:
    earlier, foreign = tmp_path / "earlier", tmp_path / "foreign"
    for folder in (earlier, foreign):
        folder.mkdir()
        (folder / "precious.txt").write_text("mine")
    (earlier / ".made-by-sostenuto-demo").touch()
    refused = worker_process.run("demo", "--dir", str(foreign))
    assert refused.wait() == 2
    assert f"error: {foreign} is there already, and no demo made it" in refused.log()
    assert len(refused.log().splitlines()) == 1
    assert [file.name for file in foreign.iterdir()] == ["precious.txt"]
    replaced = worker_process.run("demo", "--dir", str(earlier))
    replaced.wait_for_log("A job that survives its worker")
    assert not (earlier / "precious.txt").exists()
    second = worker_process.run("demo", "--dir", str(earlier))
    assert second.wait() == 4
    assert f"sostenuto demo (pid {replaced.pid}, since " in second.log()
