"""Tools of installed packages: entry points in the group `sostenuto.tools`, checked before an agent sees them.

A plugin is the operator's own code and runs in the worker process with all of its rights; only its results, its
exceptions and its hangs are kept from doing harm.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, BinaryIO

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from jobs.plain_text import one_line, strip_terminal
from jobs.resolver import open_regular, open_workspace
from storage.errors import SostenutoError
from storage.text import clean_text
from worker.cancel import Cancelled
from worker.tools.base import CrashPolicy, Tool, ToolContext, ToolResult

log = logging.getLogger(__name__)

GROUP = "sostenuto.tools"
RESERVED = "mcp__"
DEFAULT_TIMEOUT = 60.0
MOST_HUNG = 4  # calls of one tool that hang in this process: no further one is begun here until one ends
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Risk(StrEnum):
    """The worst that a tool can do, as its author declares it."""

    READ = "read"
    WRITE = "write"
    """It changes files: a movement must have `edit: true` to use it."""
    EXECUTE = "execute"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class PluginCall:
    """The surroundings of one call."""

    workspace: Path
    job_id: str
    call_id: str
    """The same when the call is run again after a crash, and no other call's of the job."""
    budget_tokens: int
    """What is longer is cut."""
    is_cancelled: Callable[[], bool]
    """True when nobody waits for the result any more: return soon."""

    def open(self, path: str) -> BinaryIO:
        """A file of the workspace for reading, wherever its links lead: the workspace is the agent's, so files in it are
        never to be opened by `workspace / path`. Raises FileRejected or NotFound, which the model is told."""
        root = open_workspace(self.workspace)
        try:
            return open_regular(root, path)
        finally:
            os.close(root)


@dataclass(frozen=True, slots=True)
class PluginTool:
    """What an entry point gives: one of these, a list of them, or a function that returns either.

    `run(call, arguments)` gets arguments that fit the schema, and returns the text for the model. It runs in a thread of
    its own; what it raises is told to the model as the tool's error.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[PluginCall, dict[str, Any]], str]
    risk: Risk
    crash: CrashPolicy = CrashPolicy.UNKNOWN_AFTER_CRASH
    timeout: float = DEFAULT_TIMEOUT


@dataclass(slots=True)
class Plugins:
    """What was found: tools that can be used, and a line for each that cannot."""

    tools: list[Tool] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def load_plugins(taken: Collection[str]) -> Plugins:
    """All installed tools but those named as one of `taken` or of an earlier package. Never raises: a broken package
    is a problem to show, and the others work."""
    found = Plugins()
    names = set(taken)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            for plugin in _load(entry):
                _check(plugin, names)
                names.add(plugin.name)
                found.tools.append(PluginRunner(plugin))
                log.info("tool %s of %s (risk: %s)", plugin.name, entry.value, plugin.risk)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            told = one_line(
                f"{type(error).__name__}: {error}" if not isinstance(error, BadPlugin) else str(error)
            )
            found.problems.append(f"tool package {entry.name} ({entry.value}): {told}")
    for problem in found.problems:
        log.warning("%s", problem)
    return found


class BadPlugin(Exception):
    """What an entry point gives is no usable tool."""


def _load(entry: EntryPoint) -> list[PluginTool]:
    loaded = entry.load()
    if callable(loaded) and not isinstance(loaded, PluginTool):
        loaded = loaded()
    tools = list(loaded) if isinstance(loaded, Iterable) else [loaded]
    if wrong := [tool for tool in tools if not isinstance(tool, PluginTool)]:
        raise BadPlugin(f"it gives a {type(wrong[0]).__name__}, not a PluginTool")
    return tools


def _check(tool: Any, taken: Collection[str]) -> None:
    if not isinstance(tool.name, str) or not _NAME.fullmatch(tool.name) or tool.name.startswith(RESERVED):
        raise BadPlugin(f"{tool.name!r} cannot be a tool's name")
    if tool.name in taken:
        raise BadPlugin(f"there is a tool {tool.name} already")
    if not isinstance(tool.description, str) or not tool.description.strip():
        raise BadPlugin(f"{tool.name} has no description")
    if tool.risk not in tuple(Risk) or tool.crash not in tuple(CrashPolicy) or not callable(tool.run):
        raise BadPlugin(f"{tool.name} declares no risk, no crash policy, or nothing to run")
    if not isinstance(tool.timeout, int | float) or not 0 < tool.timeout <= 3600:
        raise BadPlugin(f"{tool.name}: its timeout must be above 0 and at most 3,600 s")
    if not isinstance(tool.parameters, dict) or tool.parameters.get("type") != "object":
        raise BadPlugin(f"{tool.name}: its parameters must be a JSON schema of type object")
    try:
        Draft202012Validator.check_schema(tool.parameters)
    except SchemaError as error:
        raise BadPlugin(f"{tool.name}: its parameters are no JSON schema: {error.message}") from None


class PluginRunner:
    """A checked plugin as the agent loop knows tools."""

    def __init__(self, plugin: PluginTool) -> None:
        self.name = plugin.name
        self.description = clean_text(plugin.description)
        self.parameters = plugin.parameters
        self.crash = CrashPolicy(plugin.crash)
        self.edits = plugin.risk is Risk.WRITE
        self.risk = Risk(plugin.risk)
        self._plugin = plugin
        self._hung: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Waits for the plugin, but not when the job is cancelled, and not beyond its timeout: Python cannot end a
        thread, so a call that hangs is left behind."""
        with self._lock:
            self._hung = [thread for thread in self._hung if thread.is_alive()]
            if len(self._hung) >= MOST_HUNG:
                return _error(
                    f"{MOST_HUNG} calls of {self.name} hang in this worker; it begins no further one"
                )
        cancel = context.cancel
        over = threading.Event()
        outcome: list[ToolResult] = []

        def act() -> None:
            call = PluginCall(
                workspace=context.workspace,
                job_id=context.job_id,
                call_id=context.call_id,
                budget_tokens=context.budget_tokens,
                is_cancelled=lambda: cancel.reason is not None or given_up.is_set(),
            )
            try:
                outcome.append(_result(self.name, self._plugin.run(call, arguments)))
            except SostenutoError as error:
                outcome.append(_error(str(error)))
            except BaseException as error:
                log.warning("tool %s failed", self.name, exc_info=error)
                outcome.append(_error(f"{self.name} failed: {type(error).__name__}: {one_line(str(error))}"))
            over.set()

        given_up = threading.Event()
        thread = threading.Thread(target=act, name=f"tool-{self.name}", daemon=True)
        unregister = cancel.on_cancel(over.set)
        thread.start()
        try:
            over.wait(self._plugin.timeout)
        finally:
            unregister()
        if outcome:
            return outcome[0]
        given_up.set()
        with self._lock:
            self._hung.append(thread)
        if cancel.reason is not None:
            raise Cancelled(cancel.reason)
        return _error(f"{self.name} did not return within {self._plugin.timeout:g} s; its outcome is unknown")


def _result(name: str, returned: object) -> ToolResult:
    if not isinstance(returned, str):
        return _error(f"{name} returned a {type(returned).__name__}, not a text")
    return ToolResult(strip_terminal(clean_text(returned)) or "[the tool answered nothing]")


def _error(told: str) -> ToolResult:
    return ToolResult(f"Error: {told}", is_error=True)
