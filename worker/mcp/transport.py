"""The transport of a server that is a command: it runs in the job's sandbox, a thread of its own sees it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from jobs.plain_text import one_line
from worker.cancel import CancelToken
from worker.sandbox.base import Ending, Sandbox, Service

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 16 << 20  # bytes of one line
_FOR_EVER = 10 * 365 * 86_400.0
_KILL_SECONDS = 5.0
_LAST_ERRORS = 2000

Incoming = SessionMessage | Exception


@dataclass(frozen=True, slots=True)
class Launch:
    """How one server is started for one job."""

    sandbox: Sandbox
    workspace: Path
    argv: tuple[str, ...]
    variables: dict[str, str]
    folders: tuple[Path, ...]


class MessageTooLong(Exception):
    """The server printed a line without an end; it is killed."""


class SandboxedServer:
    """An MCP transport. `last_words` tells afterwards why the server is no more."""

    def __init__(self, launch: Launch, on_end: Callable[[], None]) -> None:
        self._launch = launch
        self._on_end = on_end
        self._cancel = CancelToken()
        self._ended = asyncio.Event()
        self._errors = b""
        self._pending = bytearray()
        self._ending = ""
        self._running = self._run()

    async def __aenter__(self) -> tuple[Any, Any]:
        return await self._running.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._running.__aexit__(kind, error, trace)

    @property
    def last_words(self) -> str:
        """How it ended and the last that it printed on stderr, in one line; empty while it runs."""
        said = one_line(self._errors.decode("utf-8", "replace").strip().rpartition("\n")[2])
        return f"{self._ending}: {said}" if self._ending and said else self._ending

    def kill(self) -> None:
        """Begin to kill all of it, from any thread."""
        self._cancel.cancel("closed")

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[tuple[Any, Any]]:
        loop = asyncio.get_running_loop()
        to_client, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        reader, writer = os.pipe()
        pipe = os.fdopen(writer, "wb", buffering=0)
        thread = threading.Thread(
            target=self._serve, args=(loop, to_client, reader), name="mcp-server", daemon=True
        )
        thread.start()
        tasks = [
            asyncio.create_task(self._write(pipe, from_client)),
            asyncio.create_task(self._close_at_end(to_client)),
        ]
        try:
            yield incoming, outgoing
        finally:
            self.kill()
            for stream in (incoming, outgoing, to_client, from_client):
                stream.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_SECONDS):
                    await self._ended.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(OSError):
                pipe.close()

    def _serve(
        self, loop: asyncio.AbstractEventLoop, to_client: MemoryObjectSendStream[Incoming], stdin: int
    ) -> None:
        """In the server's thread, for as long as it lives."""

        def deliver(data: bytes) -> None:
            for line in self._lines(data):
                with contextlib.suppress(ValueError):  # what is no message is somebody's print
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    # Waits until it is taken: whoever prints faster than it is read must wait too.
                    asyncio.run_coroutine_threadsafe(to_client.send(SessionMessage(message)), loop).result()

        launch = self._launch
        try:
            outcome = launch.sandbox.run(
                launch.argv,
                workspace=launch.workspace,
                timeout=_FOR_EVER,
                cancel=self._cancel,
                on_output=deliver,
                service=Service(stdin, self._keep_errors, launch.variables, launch.folders),
            )
            exited = outcome.ending is Ending.EXITED
            self._ending = f"exit code {outcome.exit_code}" if exited else f"killed ({outcome.ending})"
        except Exception as error:  # noqa: BLE001 - whatever ends it, the client must be told
            self._ending = str(error) or type(error).__name__
        finally:
            os.close(stdin)
            with contextlib.suppress(RuntimeError):  # the loop was stopped
                loop.call_soon_threadsafe(self._ended.set)

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._pending) + lines[0]
            self._pending.clear()
        self._pending += rest
        if len(self._pending) > LONGEST_MESSAGE:
            raise MessageTooLong(f"it sent a message of more than {LONGEST_MESSAGE >> 20} MB")
        return lines

    def _keep_errors(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_LAST_ERRORS:]

    async def _write(self, pipe: IO[bytes], messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            async for item in messages:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode() + b"\n")
                await writer.drain()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # its end is noticed elsewhere
        finally:
            transport.close()

    async def _close_at_end(self, to_client: MemoryObjectSendStream[Incoming]) -> None:
        await self._ended.wait()
        to_client.close()
        self._on_end()
