"""`python -m benchmarks.model_server`: a model that does as its name says, in a process of its own.

The name is STEPS-SECONDS-CHUNKS: the reply streams for SECONDS in CHUNKS and calls a tool that does next to nothing, or,
once the request has STEPS - 1 assistant messages, ends the job. One that ends in "-held" answers a job's first request
only after `GET /release`. `GET /calls` tells when requests came (the machine's monotonic clock) and how many are held.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bench import ROOT, Bench
from benchmarks.processes import environment
from tests.servers.processes import kill_tree
from tests.waiting import wait_until

READY = "the model listens on port "


@dataclass
class Model:
    """The server's state."""

    calls: list[float] = field(default_factory=list)
    held: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *headers = head.decode("latin-1").split("\r\n")
                _, path, _ = request.split(" ")
                sizes = [int(line[15:]) for line in headers if line.lower().startswith("content-length:")]
                body = await reader.readexactly(sizes[0] if sizes else 0)
                if path.endswith("/chat/completions"):
                    self.calls.append(time.monotonic())
                    await self.answer(json.loads(body), writer)
                else:
                    self.control(path, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()

    async def answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        steps, seconds, chunks, *held = request["model"].split("-")
        taken = sum(message["role"] == "assistant" for message in request["messages"])
        if held and not taken:
            self.held += 1
            await self.go.wait()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(int(chunks)):
            _send(writer, {"content": "word "}, None)
            await writer.drain()
            await asyncio.sleep(float(seconds) / int(chunks))
        _send(writer, {"tool_calls": [_call(taken, int(steps))]}, None)
        _send(writer, {}, "tool_calls")
        _frame(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    def control(self, path: str, writer: asyncio.StreamWriter) -> None:
        status = "200 OK" if path in {"/calls", "/release"} else "404 Not Found"
        if path == "/release":
            self.go.set()
            self.go, self.held = asyncio.Event(), 0
        body = json.dumps({"calls": self.calls, "held": self.held}).encode()
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


def _call(taken: int, steps: int) -> dict[str, Any]:
    if taken + 1 < steps:
        function = {"name": "recall", "arguments": json.dumps({"before": taken + 1})}
    else:
        function = {"name": "transition", "arguments": '{"next_step": "COMPLETE", "summary": "done"}'}
    return {"index": 0, "id": f"call_{time.time_ns()}", "type": "function", "function": function}


def _send(writer: asyncio.StreamWriter, delta: dict[str, Any], finish: str | None) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {
        "id": "reply",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "bench",
        "choices": [choice],
    }
    _frame(writer, f"data: {json.dumps(event)}\n\n".encode())


def _frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _serve() -> None:
    server = await asyncio.start_server(Model().connected, "127.0.0.1", 0, backlog=1024)
    print(f"{READY}{server.sockets[0].getsockname()[1]}.", flush=True)
    await server.serve_forever()


class ModelServer:
    """A running one, as the measurements see it. It ends with the session of `bench`."""

    def __init__(self, bench: Bench) -> None:
        log = bench.new_folder("model") / "output.log"
        command = [sys.executable, "-m", "benchmarks.model_server"]
        self.process = bench.session.spawn(
            command, log, env=environment(), submark=bench.folder.name, cwd=ROOT
        )
        wait_until(lambda: log.read_text().endswith(".\n"), 30, "the model listens")
        self._address = f"http://127.0.0.1:{log.read_text().partition(READY)[2].partition('.')[0]}"

    def close(self) -> None:
        kill_tree(self.process)

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to talk to it."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "none"}

    @property
    def url(self) -> str:
        return f"{self._address}/v1"

    def calls(self) -> list[float]:
        """When each request came, in order."""
        calls: list[float] = self._get("/calls")["calls"]
        return calls

    def wait_for_held(self, count: int, timeout: float = 120) -> None:
        """Returns when so many jobs wait for the release."""
        wait_until(lambda: self._get("/calls")["held"] >= count, timeout, f"{count} jobs ask the model")

    def release(self) -> None:
        self._get("/release")

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self._address + path) as response:  # noqa: S310 - our own server
            answer: dict[str, Any] = json.load(response)
        return answer


if __name__ == "__main__":
    asyncio.run(_serve())
