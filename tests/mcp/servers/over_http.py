"""A server behind a URL that keeps the headers it got, in a thread of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.mcp.servers.plain import TOOLS


@dataclass
class HttpServer:
    """What it was asked. `body_of_call` replaces its answer to a call."""

    port: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    body_of_call: bytes | None = None
    redirect: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextmanager
def http_server(port: int = 0) -> Iterator[HttpServer]:
    """Serves until the end of the block."""
    told = HttpServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.headers.append({name.lower(): value for name, value in self.headers.items()})
            told.methods.append(request["method"])
            if told.redirect:
                self.send_response(307)
                self.send_header("location", told.redirect)
                self.send_header("content-length", "0")
                self.end_headers()
            elif "id" not in request:
                self._send(202, b"")
            elif request["method"] == "tools/call" and told.body_of_call is not None:
                self._send(200, told.body_of_call)
            else:
                self._send(
                    200, json.dumps({"jsonrpc": "2.0", "id": request["id"]} | _answer(request)).encode()
                )

        def do_GET(self) -> None:
            self._send(405, b"")

        def do_DELETE(self) -> None:
            self._send(200, b"")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            about = {"name": "http", "version": "1"}
            version = request["params"]["protocolVersion"]
            return {
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            }
        case "tools/list":
            return {"result": {"tools": TOOLS[:1]}}
        case "tools/call":
            text = request["params"]["arguments"]["text"]
            return {"result": {"content": [{"type": "text", "text": text}]}}
    return {"error": {"code": -32601, "message": "unknown method"}}
