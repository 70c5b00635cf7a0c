"""One connection to a server, held open by a task of its own on the MCP loop. Everything here runs on that loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp import MCPError, types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED

from jobs.plain_text import one_line
from storage.errors import SostenutoError
from worker.mcp.http import BoundedTransport
from worker.mcp.transport import Launch, SandboxedServer

MOST_TOOLS = 128
_CLOSE_SECONDS = 6.0


class McpProblem(SostenutoError):
    """A server could not be reached, died, or was too slow. The message is for the model and the operator."""


class Connection:
    """Open between `open` and `close`; `dead` as soon as the server is known to be gone."""

    def __init__(self, make: Callable[[Connection], Any]) -> None:
        self.dead = False
        self._transport = make(self)
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    def mark_dead(self) -> None:
        """Its next user opens another."""
        self.dead = True
        self._closing.set()

    async def wait_open(self, seconds: float) -> None:
        """Until the handshake is done. Raises McpProblem; the connection is closed then."""
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise McpProblem(f"it did not answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            self.mark_dead()
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client or its transport raises
            await self.close()
            raise McpProblem(self._why(error)) from None

    async def tools(self) -> list[types.Tool]:
        """All that the server offers, at most 128. Raises McpProblem."""
        found: list[types.Tool] = []
        cursor: str | None = None
        try:
            while len(found) < MOST_TOOLS:
                page = await self._connected.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor or not page.tools:
                    break
        except Exception as error:  # noqa: BLE001 - whatever the client or its transport raises
            raise McpProblem(self._why(error)) from None
        return found[:MOST_TOOLS]

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> types.CallToolResult:
        """One call. Raises TimeoutError, or McpProblem with what the server or the connection said."""
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        )
        try:
            # Not `Client.call_tool`: it would check answers by the server's own schema, whose regular expressions
            # could hold up this whole process.
            async with asyncio.timeout(seconds):
                return await self._connected.session.send_request(request, types.CallToolResult)
        except TimeoutError:
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self.mark_dead()
            raise McpProblem(self._why(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever the client or its transport raises
            self.mark_dead()
            raise McpProblem(self._why(error)) from None

    async def close(self) -> None:
        """Returns when a server that is a command is dead."""
        self.mark_dead()
        if isinstance(self._transport, SandboxedServer):
            self._transport.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.shield(self._task)

    @property
    def _connected(self) -> Client:
        if self._client is None or self.dead:
            raise McpProblem(self._why(None))
        return self._client

    async def _hold(self) -> None:
        try:
            async with Client(self._transport, cache=None) as client:
                self._client = client
                self._ready.set_result(None)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - told to whoever waits; an ended connection has nobody to tell
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # nobody may be waiting any more
        finally:
            self.dead = True

    def _why(self, error: BaseException | None) -> str:
        """What happened in one line: the server's last words where it is a command that ended."""
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        gone = error is None or (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)
        last_words = self._transport.last_words if isinstance(self._transport, SandboxedServer) else ""
        if gone:
            return f"it ended ({last_words})" if last_words else "the connection is closed"
        told = (
            str(error) if isinstance(error, MCPError | SostenutoError) else f"{type(error).__name__}: {error}"
        )
        return one_line(told)


def stdio(launch: Launch) -> Callable[[Connection], SandboxedServer]:
    """For a `Connection` to a server that is a command."""
    return lambda connection: SandboxedServer(launch, connection.mark_dead)


def streamable_http(url: str, headers: Mapping[str, str]) -> Callable[[Connection], Any]:
    """For a `Connection` to a server behind a URL. Redirects to other places are not followed."""

    @asynccontextmanager
    async def connected() -> Any:
        async with (
            httpx2.AsyncClient(
                transport=BoundedTransport(), headers=dict(headers), timeout=httpx2.Timeout(30, read=None)
            ) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_EVENT) as streams,
        ):
            yield streams

    def make(_: Connection) -> AbstractAsyncContextManager[Any]:
        return connected()

    return make


LONGEST_EVENT = 16 << 20
