"""Jobs whose agents use the tools of MCP servers: from a movement's allow-list to what a crash leaves."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from jobs.errors import UsageError
from jobs.reasons import Reason
from jobs.states import State
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.mcp.conftest import Plain
from tests.strict_endpoint import ChatRequest
from tests.waiting import wait_until
from worker.mcp.tool import McpTool


def _with_server(stage: Stage, plain: Plain, **more: Any) -> None:
    stage.reopen(mcp={"plain": plain(**more)})
    stage.process.mcp.start(lambda: None)
    assert stage.process.mcp.names == ["plain"]


def _names(request: ChatRequest) -> set[str]:
    return {tool["function"]["name"] for tool in request.body["tools"]}


def test_a_movement_gets_the_tools_that_it_allows(stage: Stage, plain: Plain) -> None:
    _with_server(stage, plain)
    first = {
        "name": "first",
        "allowed_tools": ["mcp__plain__e*"],
        "rules": [{"condition": "done", "next": "second"}],
    }
    second = {
        "name": "second",
        "allowed_tools": ["Read"],
        "rules": [{"condition": "done", "next": "COMPLETE"}],
    }
    piece = stage.piece("two", first, second)
    job_id = stage.play(
        calls(call("mcp__plain__echo", text="hello"), call("mcp__plain__note", text="not allowed")),
        go("second"),
        calls(call("mcp__plain__echo", text="not here")),
        COMPLETE,
        piece=piece,
    )
    assert stage.job(job_id).state == State.SUCCEEDED
    results = stage.results(job_id)
    assert results[0] == "hello"
    assert "there is no tool 'mcp__plain__note' here" in results[1]
    assert any("there is no tool 'mcp__plain__echo' here" in told for told in results)
    offered = [
        {name for name in _names(request) if name.startswith("mcp__")} for request in stage.endpoint.requests
    ]
    assert offered == [{"mcp__plain__echo"}, {"mcp__plain__echo"}, set(), set()]


def test_a_movement_keeps_the_schemas_it_began_with(stage: Stage, plain: Plain) -> None:
    _with_server(stage, plain)

    def drop_the_servers_tools(_: ChatRequest) -> Any:
        stage.process.mcp.catalogue = type(stage.process.mcp.catalogue)([])
        stage.process.stopping.set()
        return calls(call("mcp__plain__echo", text="x"))

    job_id = stage.submit()
    stage.tell(calls(call("mcp__plain__echo", text="a")), calls(call("mcp__plain__echo", text="b")), COMPLETE)
    stage.run()
    sent = [json.dumps(request.body["tools"]) for request in stage.endpoint.requests]
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert stage.job(job_id).state == State.SUCCEEDED


@pytest.mark.parametrize(("tool", "told"), [("note", "Interrupted"), ("echo", "again")])
def test_a_crash_during_a_call(stage: Stage, plain: Plain, tool: str, told: str) -> None:
    """Only a tool that its server calls read-only or idempotent is run again."""
    _with_server(stage, plain)
    tools = stage.process.mcp.catalogue
    victim = tools.select([f"mcp__plain__{tool}"], edit=False)[f"mcp__plain__{tool}"]
    assert isinstance(victim, McpTool)
    ran = victim.call

    def die(*given: Any) -> Any:
        ran(*given)
        raise PowerCut

    object.__setattr__(victim, "call", die)
    job_id = stage.submit()
    stage.tell(calls(call(f"mcp__plain__{tool}", text="again")), COMPLETE)
    stage.crash()
    stage.sweep()
    _with_server(stage, plain)
    stage.run()
    assert stage.job(job_id).state == State.SUCCEEDED
    assert told in stage.results(job_id)[0]
    if tool == "note":
        assert (stage.workspace(job_id) / "output" / "notes").read_text() == "again\n"


def test_a_cancel_ends_a_job_whose_server_hangs(stage: Stage, plain: Plain) -> None:
    _with_server(stage, plain, call_timeout=600)
    job_id = stage.submit()
    stage.tell(calls(call("mcp__plain__hang")))
    with stage.running():
        wait_until((stage.workspace(job_id) / "output" / "hanging").exists)
        stage.cancel(job_id)
        stage.look()
    assert stage.job(job_id).state == State.CANCELLED
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "mcp-server"])


def test_a_workspaces_own_servers_have_no_effect(stage: Stage) -> None:
    """Uploaded configuration of other systems, and a command that would leave a trace if it ran."""
    server = {"command": "/bin/sh", "args": ["-c", "touch output/started"]}
    text = json.dumps({"mcpServers": {"evil": server}, "mcp": {"evil": server}})
    files = {name: text.encode() for name in (".mcp.json", "mcp.json", "sostenuto.yaml")}
    job_id = stage.play(
        calls(call("Bash", command="cp input/.mcp.json input/sostenuto.yaml .")), COMPLETE, files=files
    )
    assert stage.process.mcp.names == []
    assert not any(
        name.startswith("mcp__") for request in stage.endpoint.requests for name in _names(request)
    )
    assert list((stage.workspace(job_id) / "output").iterdir()) == []


def test_a_required_server_that_is_missing_fails_the_job_at_once(stage: Stage) -> None:
    piece = stage.piece(
        "needs", {"name": "only", "rules": [{"condition": "done", "next": "COMPLETE"}]}, required_mcp=["docs"]
    )
    job_id = stage.submit(piece=piece)  # no worker runs, as far as the submitter can know
    stage.tell()
    stage.run()
    job = stage.job(job_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.MCP_SERVER_MISSING)
    assert "docs" in (job.error or "")
    assert stage.endpoint.requests == []
    stage.process.register()
    with pytest.raises(UsageError, match="requires the MCP server 'docs', which no running worker offers"):
        stage.submit(piece=piece)


def test_a_required_server_that_is_offered(stage: Stage, plain: Plain) -> None:
    _with_server(stage, plain)
    stage.process.register()
    piece = stage.piece(
        "needs",
        {"name": "only", "rules": [{"condition": "done", "next": "COMPLETE"}]},
        required_mcp=["plain"],
    )
    job_id = stage.play(calls(call("mcp__plain__echo", text="there")), COMPLETE, piece=piece)
    assert stage.results(job_id)[0] == "there"
