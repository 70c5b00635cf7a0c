"""The HTTP API: a thin door over `jobs`, as the command line is. See docs/http-api.md."""
