"""Tools of MCP servers. `servers` is what the worker uses; the `mcp` package is imported only where a server is named."""
