"""What models really send, and what they get back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.tools.helpers import TOOLS, make_context, make_workspace
from worker.cancel import CancelToken
from worker.tokens import estimate_tokens
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.catalogue import Catalogue, schemas, standard_tools
from worker.tools.dispatch import run_tool


class Probe:
    """A tool that remembers what it was called with."""

    name = "Probe"
    description = "for tests"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "todos": {"type": "array", "items": {"type": "object"}},
            "options": {"type": ["object", "null"]},
            "text": {"type": "string"},
            "either": {"type": ["string", "array"]},
        },
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def __init__(self, answer: str | Exception = "done") -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        self.calls.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return ToolResult(self.answer)


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return make_context(make_workspace(tmp_path))


@pytest.mark.parametrize(
    "text", ['{"text":"ls', "[]", "null", '"ls"', "", "  ", "NaN", '{"text": NaN}', "x" * 200_000]
)
def test_broken_arguments_are_not_run(context: ToolContext, text: str) -> None:
    """Arguments invalid or not an object: a tool error with a short preview."""
    tool = Probe()
    result = run_tool("Probe", text, context, {"Probe": tool})
    assert result.is_error
    assert "was not run" in result.content
    assert len(result.content) < 400
    assert tool.calls == []


def test_deep_nesting_and_huge_arguments_are_not_run(context: ToolContext) -> None:
    tool = Probe()
    for text in ("[" * 100_000, '{"text":"' + "x" * 5_000_000 + '"}'):
        assert run_tool("Probe", text, context, {"Probe": tool}).is_error
    assert tool.calls == []


def test_an_array_given_as_a_string_is_decoded_once(context: ToolContext) -> None:
    tool = Probe()
    text = json.dumps({"todos": '[{"id": "1"}]', "options": '{"a": "[1]"}', "text": "[1]", "either": "[1]"})
    assert not run_tool("Probe", text, context, {"Probe": tool}).is_error
    assert tool.calls == [{"todos": [{"id": "1"}], "options": {"a": "[1]"}, "text": "[1]", "either": "[1]"}]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"todos": ["x"]}, "'todos[0]'"),
        ({"todos": "not json"}, "'todos'"),
        ({"text": 3}, "'text'"),
        ({"txt": "x"}, "'txt'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    context: ToolContext, arguments: dict[str, Any], named: str
) -> None:
    tool = Probe()
    result = run_tool("Probe", json.dumps(arguments), context, {"Probe": tool})
    assert result.is_error
    assert named in result.content
    assert tool.calls == []


@pytest.mark.parametrize("name", ["Grep_Files", "", "Read ", "read", "x" * 10_000, "\ud800"])
def test_unknown_tools_are_answered_with_the_allowed_ones(context: ToolContext, name: str) -> None:
    allowed = Catalogue(standard_tools()).select(["Read", "G*", "Write"], edit=False)
    result = run_tool(name, "{}", context, allowed)
    assert result.is_error
    assert result.content.endswith("Allowed tools: Glob, Grep, Read")
    assert len(result.content) < 200


def test_an_exception_tells_its_type_and_no_other_folder(context: ToolContext) -> None:
    error = ValueError(f"bad thing in {context.workspace}/a and /etc/shadow\nsecond line")
    result = run_tool("Probe", "{}", context, {"Probe": Probe(error)})
    assert result.content == "Error: Probe failed: ValueError: bad thing in /workspace/a and … second line"
    result = run_tool("Probe", "{}", context, {"Probe": Probe(PermissionError(13, "denied", "/root/x"))})
    assert result.content == "Error: Probe failed: PermissionError: denied"


def test_results_are_clean_and_within_the_budget(context: ToolContext) -> None:
    result = run_tool("Probe", "{}", context, {"Probe": Probe("a\0b\ud83d")})
    assert result.content == "a␀b\ufffd"
    small = make_context(context.workspace, budget=1000)
    result = run_tool("Probe", "{}", small, {"Probe": Probe("漢字 text " * 50_000)})
    assert estimate_tokens(result.content) <= 1000
    assert result.content.startswith("漢字 text ")
    assert "cut here" in result.content


def test_globs_select_and_edit_gates() -> None:
    names = [*TOOLS]
    catalogue = Catalogue(standard_tools())
    readers = ["Read", "ReadImage", "ReadOffice", "ReadPdf"]
    assert names == ["Bash", "Edit", "Glob", "Grep", *readers, "Write"]
    assert list(catalogue.select(["*"], edit=False)) == ["Bash", "Glob", "Grep", *readers]
    assert list(catalogue.select(["Read*"], edit=True)) == readers
    assert list(catalogue.select(["mcp__*", "read"], edit=True)) == []
    with pytest.raises(ValueError, match="Bash"):
        Catalogue([*standard_tools(), *standard_tools()])


def test_schemas_are_the_same_bytes_each_time() -> None:
    backwards = dict(reversed(TOOLS.items()))
    assert json.dumps(schemas(TOOLS)) == json.dumps(schemas(backwards))
    assert all(tool["function"]["parameters"]["type"] == "object" for tool in schemas(TOOLS))


def test_crash_policies() -> None:
    repeatable = {name for name, tool in TOOLS.items() if tool.crash is CrashPolicy.REPEATABLE}
    assert repeatable == {"Read", "ReadImage", "ReadOffice", "ReadPdf", "Glob", "Grep", "Write"}


def test_bash_without_a_sandbox_is_refused(tmp_path: Path) -> None:
    context = make_context(make_workspace(tmp_path), sandbox=None, cancel=CancelToken())
    result = run_tool("Bash", '{"command": "echo hi"}', context, TOOLS)
    assert result.is_error
    assert "no sandbox" in result.content
