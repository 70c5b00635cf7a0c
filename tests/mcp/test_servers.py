"""Servers that are commands: what they see, how they answer, and how they end."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mcp.conftest import SERVERS, Caller, Plain, new_workspace
from tests.sandbox.conftest import make_shell
from tests.sandbox.test_endings import alive
from tests.waiting import wait_until
from worker.cancel import Cancelled
from worker.mcp.servers import MOST_STARTS
from worker.sandbox.base import Sandbox
from worker.tools.base import CrashPolicy


def test_what_is_offered(caller: Caller) -> None:
    tools = caller.servers.catalogue.select(["mcp__plain__*"], edit=False)
    assert "mcp__plain__echo" in tools
    assert len(tools) == 11
    assert tools["mcp__plain__echo"].parameters["properties"] == {"text": {"type": "string"}}
    assert tools["mcp__plain__echo"].crash is CrashPolicy.REPEATABLE
    assert tools["mcp__plain__note"].crash is CrashPolicy.UNKNOWN_AFTER_CRASH
    assert caller.servers.names == ["plain"]
    assert caller.servers.problems == []


def test_a_server_sees_its_jobs_workspace_and_nothing_else(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-in-environment")
    (caller.workspace / "input" / "mine").touch()
    other = Caller(caller.servers, new_workspace(tmp_path / "other"))
    seen = json.loads(caller("look.around").content)
    assert {"input", "output", "logs"} <= set(seen["files"])
    assert "sk-canary" not in json.dumps(seen)
    assert not {"OPENAI_API_KEY", "SOSTENUTO_DATA_DIR", "VIRTUAL_ENV"} & set(seen["variables"])
    assert other("note", text="b").content == "noted"
    assert caller("note", text="a").content == "noted"
    assert (caller.workspace / "output" / "notes").read_text() == "a\n"
    assert (other.workspace / "output" / "notes").read_text() == "b\n"


def test_variables_come_from_the_workers_environment_by_name_only(
    sandbox: Sandbox, started: Callable[..., Caller], plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret-of-the-server")
    caller = started(sandbox, {"plain": plain(env={"TOKEN": "Bearer ${A_TOKEN}", "PLAIN": "a value"})})
    caller.budget = 10_000
    seen = json.loads(caller("look.around").content)["variables"]
    assert seen["PLAIN"] == "a value"
    assert seen["TOKEN"].startswith("Bearer ")
    lacking = started(sandbox, {"plain": plain(env={"TOKEN": "${NOT_SET_ANYWHERE}"})})
    assert lacking.servers.names == []
    assert "NOT_SET_ANYWHERE is not set" in lacking.servers.problems[0]


def test_answers_are_clean_text_within_bounds(caller: Caller) -> None:
    picture = caller("picture")
    assert picture.content.startswith("[image: image/png, 6 bytes, not shown: ")
    assert picture.content.endswith("]\nred ␀")
    assert picture.images == ()
    assert caller("fail").content == "Error: no luck"
    assert caller("fail").is_error
    assert len(caller("big", n=3_000_000).content) <= 16 * caller.budget


def test_a_server_that_dies_is_started_again_but_not_for_ever(caller: Caller) -> None:
    for _ in range(MOST_STARTS):
        died = caller("die")
        assert died.is_error
        assert "it ended (exit code 3: I am dying)" in died.content
    assert "is not started again in this run" in caller("echo", text="?").content
    caller.end()
    assert caller("echo", text="in the next run").content == "in the next run"


def test_a_stuck_server_times_out_and_the_next_call_gets_another(
    sandbox: Sandbox, started: Callable[..., Caller], plain: Plain
) -> None:
    caller = started(sandbox, {"plain": plain(call_timeout=1)})
    stuck = caller("hang")
    assert "no answer within 1 s; its outcome is unknown" in stuck.content
    assert stuck.is_error
    assert caller("echo", text="again").content == "again"


def test_a_cancel_abandons_the_call_and_its_server_dies_with_the_run(caller: Caller) -> None:
    mark = f"daemon-of-{id(caller)}"
    assert caller("daemon", mark=mark).content == "started"
    wait_until(lambda: alive(mark))
    raised: list[BaseException] = []

    def hang() -> None:
        try:
            caller("hang")
        except Cancelled as cancelled:
            raised.append(cancelled)

    thread = threading.Thread(target=hang)
    thread.start()
    wait_until((caller.workspace / "output" / "hanging").exists)
    caller.cancel.cancel("cancel")
    thread.join(10)
    assert [str(error) for error in raised] == ["stopped: cancel"]
    caller.end()
    assert alive(mark) == []


@pytest.mark.parametrize(
    ("mode", "told"), [("silent", "did not answer within 1 s"), ("endless", "more than 16 MB")]
)
def test_a_server_that_never_answers_is_a_problem_to_show(
    sandbox: Sandbox, started: Callable[..., Caller], plain: Plain, mode: str, told: str
) -> None:
    seconds = 1 if mode == "silent" else 30
    caller = started(sandbox, {"plain": plain(env={"MODE": mode}, start_timeout=seconds)})
    assert caller.servers.names == []
    assert told in caller.servers.problems[0]
    assert told in caller("echo").content


def test_without_a_sandbox_no_command_is_started(started: Callable[..., Caller], plain: Plain) -> None:
    caller = started(None, {"plain": plain()})
    refusal = "this worker has no sandbox, so it runs no commands"
    assert caller.servers.problems == [f"MCP server plain: {refusal}"]
    assert caller("echo").content == f"Error: MCP server plain: {refusal}"


def test_a_folder_to_read_may_not_show_the_data_folder(
    sandbox: Sandbox, started: Callable[..., Caller], plain: Plain, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for folder in (tmp_path, tmp_path / "data"):
        caller = started(sandbox, {"plain": plain(read=(folder,))})
        assert "would show it the data folder" in caller.servers.problems[0]


def test_a_server_made_with_the_official_package(
    tmp_path: Path, started: Callable[..., Caller], sandbox: Sandbox
) -> None:

    environment = Path(sys.prefix)
    caller = started(
        sandbox,
        {
            "official": {
                "command": str(environment / "bin" / "python"),
                "args": ("-I", str(SERVERS / "official.py")),
                "read": (environment, SERVERS),
                "start_timeout": 60,
            }
        },
    )
    assert caller.servers.problems == []
    assert caller("add", server="official", a=2, b=3).content == "5"


def test_every_level_confines_it_alike(tmp_path: Path, started: Callable[..., Caller], plain: Plain) -> None:
    """None: a server is a command like those of Bash, and runs only where those do."""
    caller = started(make_shell("none", tmp_path / "probe").sandbox, {"plain": plain()})
    assert caller("echo", text="unsandboxed").content == "unsandboxed"
