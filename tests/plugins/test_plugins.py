"""Tools of installed packages: what is taken, what is refused, and what a bad one can do: nothing but fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.states import State
from storage import registry
from tests.agent.conftest import endpoint, sandbox, stage
from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.hook_example import install_example
from worker.cancel import Cancelled, CancelToken
from worker.plugins import MOST_HUNG, PluginCall, PluginRunner, PluginTool, Risk, load_plugins
from worker.process import WorkerProcess
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.dispatch import run_tool

__all__ = ["endpoint", "sandbox", "stage"]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
HEAD = "from worker.plugins import PluginTool, Risk\nSCHEMA = {'type': 'object'}\n"
GOOD = HEAD + (
    "def make(name): return PluginTool(name, 'a tool', SCHEMA, lambda call, given: 'done', Risk.READ)\n"
)
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a module with entry points; undone with the test."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))

    def add(module: str, source: str, **entries: str) -> None:
        info = site / f"{module}-1.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        lines = [f"{name} = {module}:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("[sostenuto.tools]\n" + "\n".join(lines) + "\n")

    return add


def _run(tool: PluginTool, arguments: str = "{}", cancel: CancelToken | None = None) -> ToolResult:
    context = ToolContext(
        workspace=Path("/nowhere"),
        cancel=cancel or CancelToken(),
        budget_tokens=50,
        job_id="job",
        call_id="call",
        sandbox=None,
        bash_timeout=1,
    )
    return run_tool(tool.name, arguments, context, {tool.name: PluginRunner(tool)})


def _tool(run: Callable[[PluginCall, dict[str, Any]], Any], **more: Any) -> PluginTool:
    return PluginTool("plug", "a tool", SCHEMA, run, Risk.READ, **more)


def test_the_example_package_in_a_job(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install_example(site, "tool_package")
    monkeypatch.syspath_prepend(str(site))
    stage.process = WorkerProcess(stage.process.installation, "worker-x", ["agent"], stage.sandbox)
    job_id = stage.play(
        calls(
            call("word_count", path="input/a.txt"),
            call("word_count", path="../../secret"),
            call("word_count", path="input/none"),
            call("word_count", path=5),
        ),
        COMPLETE,
        files={"a.txt": b"one two\nthree\n"},
    )
    assert stage.job(job_id).state == State.SUCCEEDED
    counted, outside, missing, misfit = stage.results(job_id)[:4]
    assert counted == "2 lines, 3 words"
    assert "contains '..'" in outside
    assert "does not exist" in missing
    assert "word_count was not run" in misfit
    stage.process.register()
    [worker] = registry.live_workers(stage.doors.db, 60)
    assert "word_count" in worker["tools"]
    assert worker["problems"] == []


def test_a_broken_package_is_told_and_the_others_work(install: Install) -> None:
    install(
        "good", GOOD + "ONE = make('one')\ndef two(): return [make('two'), make('three')]\n", a="ONE", b="two"
    )
    install("gone", "import no_such_module\n", c="X")
    install("leaves", "raise SystemExit('bye')\n", d="X")
    install("lacks", "", e="X")
    install("wrong", "X = 5\n", f="X")
    install("raises", "def make(): raise ValueError('not today')\n", g="make")
    found = load_plugins(["Read"])
    assert [tool.name for tool in found.tools] == ["one", "two", "three"]
    told = "\n".join(found.problems)
    assert len(found.problems) == 5
    for expected in (
        "No module named 'no_such_module'",
        "bye",
        "has no attribute 'X'",
        "gives a int",
        "not today",
    ):
        assert expected in told


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("make('Read')", "there is a tool Read already"),
        ("make('mcp__a__b')", "cannot be a tool's name"),
        ("make('a b')", "cannot be a tool's name"),
        ("make('x' * 65)", "cannot be a tool's name"),
        ("make(None)", "cannot be a tool's name"),
        ("PluginTool('x', '', SCHEMA, print, Risk.READ)", "no description"),
        ("PluginTool('x', 'x', {'type': 'array'}, print, Risk.READ)", "schema of type object"),
        ("PluginTool('x', 'x', {'type': 'object', 'required': 5}, print, Risk.READ)", "no JSON schema"),
        ("PluginTool('x', 'x', SCHEMA, print, 'harmless')", "declares no risk"),
        ("PluginTool('x', 'x', SCHEMA, None, Risk.READ)", "nothing to run"),
        ("PluginTool('x', 'x', SCHEMA, print, Risk.READ, timeout=0)", "timeout"),
        ("[make('twice'), make('twice')]", "there is a tool twice already"),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused(install: Install, made: str, told: str) -> None:
    module = f"refused{abs(hash(made))}"
    install(module, GOOD + f"X = {made}\n", x="X")
    found = load_plugins(["Read"])
    assert told in found.problems[0]
    assert len(found.tools) == made.count("twice") // 2


def test_what_it_declares_is_what_the_agent_loop_sees() -> None:
    writes = PluginRunner(PluginTool("w", "w", SCHEMA, lambda *_: "", Risk.WRITE, CrashPolicy.REPEATABLE))
    reads = PluginRunner(_tool(lambda *_: ""))
    assert (writes.edits, writes.crash) == (True, CrashPolicy.REPEATABLE)
    assert (reads.edits, reads.crash) == (False, CrashPolicy.UNKNOWN_AFTER_CRASH)


def test_arguments_that_do_not_fit_never_reach_it() -> None:
    ran: list[object] = []

    def run(call: PluginCall, arguments: dict[str, Any]) -> str:
        ran.append(arguments)
        return "ran"

    tool = _tool(run)
    assert "was not run" in _run(tool, '{"n": "five"}').content
    assert "was not run" in _run(tool, '{"m": 5}').content
    assert ran == []


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), RecursionError()])
def test_what_it_raises_is_the_tools_error(error: BaseException) -> None:
    def fail(*_: object) -> str:
        raise error

    result = _run(_tool(fail))
    assert result.is_error
    assert f"plug failed: {type(error).__name__}" in result.content


def test_what_it_returns_is_cleaned_and_bounded() -> None:
    assert _run(_tool(lambda *_: "a\0b\x1b[2J\ud83d")).content == "a␀b�"
    assert len(_run(_tool(lambda *_: "word " * 100_000)).content) < 1000
    assert "returned a int" in _run(_tool(lambda *_: 5)).content


def test_one_that_hangs_is_left_behind_but_not_often() -> None:
    release = threading.Event()
    told: list[bool] = []

    def hang(call: PluginCall, _: dict[str, Any]) -> str:
        release.wait(60)
        told.append(call.is_cancelled())
        return "late"

    runner = PluginRunner(_tool(hang, timeout=0.05))
    context = ToolContext(Path("/nowhere"), CancelToken(), 50, "job", "call", None, 1)
    for _ in range(MOST_HUNG):
        assert "did not return within 0.05 s; its outcome is unknown" in runner.run(context, {}).content
    assert "begins no further one" in runner.run(context, {}).content
    release.set()
    for thread in threading.enumerate():
        if thread.name == "tool-plug":
            thread.join(10)
    assert told == [True] * MOST_HUNG


def test_a_cancel_does_not_wait_for_it() -> None:
    started, release, cancel = threading.Event(), threading.Event(), CancelToken()

    def hang(*_: object) -> str:
        started.set()
        release.wait(60)
        return "late"

    def stop() -> None:
        started.wait(10)
        cancel.cancel("cancel")

    threading.Thread(target=stop).start()
    with pytest.raises(Cancelled):
        _run(_tool(hang, timeout=600), cancel=cancel)
    release.set()


def test_the_example_reads_no_file_through_a_link_that_leaves(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link").symlink_to(tmp_path / "secret")
    call_ = PluginCall(workspace, "job", "call", 50, lambda: False)
    with pytest.raises(Exception, match="symbolic link"):
        call_.open("link")
