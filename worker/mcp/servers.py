"""The MCP servers of one worker process: what they offer, and calls to them.

A server that is a command runs in the sandbox of one job's run, sees that job's workspace alone, and dies with the run.
A server behind a URL is one connection for all jobs of the process. What a server offers is asked at the worker's
start, and again later only where it could not be told; a movement keeps the schemas it began with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.mcp_settings import McpServer, fill_in
from jobs.plain_text import one_line
from jobs.secret_files import Variables
from worker.cancel import CancelToken
from worker.mcp.names import tool_names, usable_schema
from worker.mcp.tool import McpTool
from worker.model.errors import ModelError
from worker.model.loop import ModelLoop
from worker.sandbox.base import Sandbox
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.bash import SHELL
from worker.tools.catalogue import Catalogue

if TYPE_CHECKING:
    from mcp import types

    from worker.mcp.connection import Connection

log = logging.getLogger(__name__)

MOST_STARTS = 4  # of a command in one run
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 60.0
LONGEST_WAIT = 5.0  # a call waits at most so long for a server's next start
RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _Slot:
    """The place of one connection, and what is remembered of those that were there before."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    starts: int = 0
    failures: int = 0
    not_before: float = 0.0


class McpServers:
    """All servers that the settings name. Calls come from any thread."""

    def __init__(self, servers: Mapping[str, McpServer], sandbox: Sandbox | None, data_dir: Path) -> None:
        self._servers = dict(servers)
        self._sandbox = sandbox
        self._data_dir = data_dir.resolve()
        self._loop = ModelLoop()
        self._lock = threading.Lock()
        self._slots: dict[tuple[CancelToken | None, str], _Slot] = {}
        self._tools: dict[str, list[McpTool]] = {}
        self._problems: dict[str, str] = dict.fromkeys(self._servers, "not asked yet")
        self._stopping = threading.Event()
        self.catalogue = Catalogue([])

    # --- what there is ---

    @property
    def names(self) -> list[str]:
        """The servers that told what they offer."""
        return sorted(self._tools)

    @property
    def problems(self) -> list[str]:
        """One line for each server that did not."""
        return [f"MCP server {name}: {told}" for name, told in sorted(self._problems.items())]

    def problem_of(self, name: str) -> str:
        """Why a server is not offered."""
        return self._problems.get(name) or f"the worker's settings name no server {name}"

    def start(self, on_change: Callable[[], None]) -> None:
        """Asks all servers at once what they offer; those that do not answer are asked again in the background, and
        `on_change` is called when one does. Never raises for a server's fault."""
        if not self._servers:
            return
        self.ask_missing()
        for problem in self.problems:
            log.warning("%s", problem)
        if self._problems:
            threading.Thread(target=self._retry, args=(on_change,), name="mcp-retry", daemon=True).start()

    def stop(self) -> None:
        """No further call; servers that still run are killed."""
        self._stopping.set()
        with self._lock:
            tokens = {token for token, _ in self._slots}
        for token in tokens:
            self._close(token)
        self._loop.stop()

    def ask_missing(self) -> bool:
        """Asks each server that has not told its tools yet. True if one of them now did."""
        missing = [name for name in self._servers if name not in self._tools]

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(self._discover, missing), return_exceptions=True)

        try:
            answers = self._loop.run(ask_all, CancelToken())
        except ModelError:  # stopped meanwhile
            return False
        found = False
        for name, answer in zip(missing, answers, strict=True):
            if isinstance(answer, BaseException):
                self._problems[name] = one_line(str(answer)) or type(answer).__name__
            else:
                self._tools[name] = answer
                self._problems.pop(name, None)
                found = True
        self.catalogue = Catalogue([tool for tools in self._tools.values() for tool in tools])
        return found

    def _retry(self, on_change: Callable[[], None]) -> None:
        wait = RETRY_SECONDS
        while self._problems and not self._stopping.wait(wait):
            wait = min(wait * 2, LONGEST_BACKOFF)
            if self.ask_missing() and not self._stopping.is_set():
                try:
                    on_change()
                except Exception:
                    log.exception("could not publish what the MCP servers offer")

    async def _discover(self, name: str) -> list[McpTool]:
        server = self._servers[name]
        # A folder of its own: no job is there yet, and no job's files are a server's business before its job.
        with tempfile.TemporaryDirectory(prefix="sostenuto-mcp-") as folder:
            connection = self._connection(name, Path(folder))
            try:
                await connection.wait_open(server.start_timeout)
                offered = await connection.tools()
            finally:
                await connection.close()
        names = tool_names(name, (tool.name for tool in offered))
        return [self._tool(name, names[tool.name], tool) for tool in {t.name: t for t in offered}.values()]

    def _tool(self, server: str, name: str, tool: types.Tool) -> McpTool:
        hints = tool.annotations
        repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        return McpTool(
            name=name,
            server=server,
            raw_name=tool.name,
            description=one_line(tool.description or tool.title or tool.name, 2000),
            parameters=usable_schema(tool.input_schema),
            crash=CrashPolicy.REPEATABLE if repeatable else CrashPolicy.UNKNOWN_AFTER_CRASH,
            call=self.call,
        )

    # --- calls ---

    def call(self, server: str, tool: str, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """One call. Raises Cancelled as soon as the job is stopped; every other trouble is a result."""
        from worker.mcp.connection import McpProblem
        from worker.mcp.results import to_result

        settings = self._servers[server]
        token = context.cancel if settings.command is not None else None
        with self._lock:
            slot = self._slots.setdefault((token, server), _Slot())

        async def act() -> types.CallToolResult:
            connection = await self._opened(slot, server, context.workspace)
            try:
                return await connection.call(tool, arguments, settings.call_timeout)
            except TimeoutError:
                if token is not None:  # a server of this run alone, and stuck
                    await connection.close()
                raise McpProblem(
                    f"no answer within {settings.call_timeout:g} s; its outcome is unknown"
                ) from None

        try:
            answer = self._loop.run(act, context.cancel)
        except McpProblem as problem:
            return ToolResult(f"Error: MCP server {server}: {problem}", is_error=True)
        except ModelError:
            return ToolResult(f"Error: MCP server {server}: this worker is stopping", is_error=True)
        return to_result(answer, context, server)

    def close_run(self, token: CancelToken) -> None:
        """A run is over: kill the servers that were its own, and return when they are dead."""
        if self._servers:
            self._close(token)

    def _close(self, token: CancelToken | None) -> None:
        with self._lock:
            slots = [self._slots.pop(key) for key in list(self._slots) if key[0] is token]
        connections = [slot.connection for slot in slots if slot.connection is not None]

        async def close_all() -> None:
            await asyncio.gather(*(connection.close() for connection in connections))

        if connections:
            with contextlib.suppress(ModelError):
                self._loop.run(close_all, CancelToken())

    async def _opened(self, slot: _Slot, name: str, workspace: Path) -> Connection:
        """The slot's connection, opened anew where there is none or it died. Raises McpProblem."""
        from worker.mcp.connection import McpProblem

        server = self._servers[name]
        async with slot.lock:
            if slot.connection is not None:
                if not slot.connection.dead:
                    return slot.connection
                slot.connection = None
                self._back_off(slot)
            if server.command is not None and slot.starts >= MOST_STARTS:
                raise McpProblem(f"it ended {slot.starts} times and is not started again in this run")
            if (wait := slot.not_before - time.monotonic()) > LONGEST_WAIT:
                raise McpProblem(f"it cannot be reached; it is tried again in {wait:.0f} s")
            await asyncio.sleep(max(wait, 0))
            slot.starts += 1
            connection = self._connection(name, workspace)
            slot.connection = connection
            try:
                await connection.wait_open(server.start_timeout)
            except McpProblem:
                slot.connection = None
                self._back_off(slot)
                raise
            if server.command is None:
                slot.failures = 0
            return connection

    @staticmethod
    def _back_off(slot: _Slot) -> None:
        slot.not_before = time.monotonic() + min(FIRST_BACKOFF * 2**slot.failures, LONGEST_BACKOFF)
        slot.failures += 1

    def _connection(self, name: str, workspace: Path) -> Connection:
        """A new connection, opening. Raises McpProblem where it cannot even be tried."""
        from worker.mcp.connection import Connection, McpProblem, stdio, streamable_http
        from worker.mcp.transport import Launch

        server = self._servers[name]
        try:
            environ = Variables()
            variables, headers = fill_in(server.env, environ), fill_in(server.headers, environ)
        except KeyError as error:
            raise McpProblem(f"the variable {error.args[0]} is not set in the worker's environment") from None
        if server.url is not None:
            return Connection(streamable_http(server.url, headers))
        if self._sandbox is None:
            raise McpProblem("this worker has no sandbox, so it runs no commands")
        for folder in server.read:
            if not folder.is_dir():
                raise McpProblem(f"the folder {folder} that it may read is not there")
            if self._data_dir.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(
                self._data_dir
            ):
                raise McpProblem(f"the folder {folder} would show it the data folder")
        # The program is looked for in the sandbox, on the sandbox's own PATH.
        argv = (SHELL, "-c", 'exec "$@"', "bash", server.command or "", *server.args)
        return Connection(stdio(Launch(self._sandbox, workspace, argv, variables, server.read)))
