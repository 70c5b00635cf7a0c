"""An MCP server on standard input and output in a page of plain Python: quick to start, and able to misbehave.

Run inside of the sandbox with the machine's Python, which has no packages. `MODE` in its environment: `silent` never
answers, `endless` prints one endless line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def _tool(name: str, properties: dict[str, Any] | None = None, **hints: bool) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"{name} of a test", "inputSchema": schema, "annotations": hints}


TOOLS = [
    _tool("echo", {"text": {"type": "string", "pattern": "(a+)+$"}}, readOnlyHint=True),
    _tool("note", {"text": {"type": "string"}}),
    _tool("look.around"),
    _tool("look around"),
    _tool("big", {"n": {"type": "integer"}}),
    _tool("picture"),
    _tool("show", {"images": {"type": "array"}}, readOnlyHint=True),
    _tool("fail"),
    _tool("hang"),
    _tool("die"),
    _tool("daemon", {"mark": {"type": "string"}}),
]


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _call(name: str, given: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "echo":
            return _text(given.get("text", ""))
        case "note":  # an effect that can be counted
            with Path("output/notes").open("a", encoding="utf-8") as notes:
                notes.write(given.get("text", "") + "\n")
            return _text("noted")
        case "look.around":
            seen = {"files": sorted(os.listdir()), "variables": dict(os.environ)}  # noqa: PTH208
            return _text(json.dumps(seen))
        case "big":
            return _text("x" * given["n"])
        case "picture":
            picture = {"type": "image", "mimeType": "image/png", "data": "aGFsbG8="}
            return {"content": [picture, {"type": "text", "text": "\x1b[31mred\x1b[0m \x00"}]}
        case "show":
            return {
                "content": [_text("before")["content"][0], *given["images"], _text("after")["content"][0]]
            }
        case "fail":
            return _text("no luck") | {"isError": True}
        case "hang":
            Path("output/hanging").write_text("now")
            time.sleep(1000)
        case "die":
            sys.stderr.write("I am dying\n")
            os._exit(3)
        case "daemon":
            subprocess.Popen(
                ["/bin/bash", "-c", f"exec -a {given['mark']} sleep 1000"], start_new_session=True
            )
            return _text("started")
    return _text("?")


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "plain", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return _call(params["name"], params.get("arguments") or {})
    return None


def main() -> None:
    """Until its input ends."""
    mode = os.environ.get("MODE")
    if mode == "silent":
        time.sleep(1000)
    while mode == "endless":
        os.write(1, b"x" * 65536)
    print("this line is no message", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = _answer(request["method"], request.get("params") or {})
            wrong = {"error": {"code": -32601, "message": "unknown method"}}
            answer = {"jsonrpc": "2.0", "id": request["id"]} | (
                wrong if result is None else {"result": result}
            )
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
