"""A server made with the `mcp` package, as people make theirs."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("official")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
